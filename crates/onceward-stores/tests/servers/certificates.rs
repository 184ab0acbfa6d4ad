//! Certificates for throw-away servers, made by openssl.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{User, fresh_name, run};

/// An authority, and what it has signed. All files are in PEM form.
pub(crate) struct Certificates {
    folder: PathBuf,
    user: User,
}

impl Certificates {
    /// A new authority whose files this user's servers can read.
    pub(crate) fn new(user: &str) -> Self {
        let user = User::unprivileged(user);
        let certificates = Self { folder: user.folder(), user };
        std::fs::set_permissions(&certificates.folder, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let at = |name: &str| certificates.path(name);
        run(Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-subj",
                &format!("/CN={}", fresh_name()),
                "-days",
                "2",
            ])
            .args(["-keyout", &at("ca.key"), "-out", &at("ca.pem")]));
        let config = format!(
            "[ca]\ndefault_ca = d\n[d]\ndatabase = {0}/index\nnew_certs_dir = {0}\nrand_serial = yes\n\
             default_md = sha256\npolicy = p\ncopy_extensions = copy\nunique_subject = no\n[p]\ncommonName = supplied\n",
            certificates.folder.display()
        );
        std::fs::write(at("ca.cnf"), config).expect("a file in a folder of ours");
        std::fs::write(at("index"), "").expect("a file in a folder of ours");
        certificates
    }

    /// Signs a certificate for `localhost` and for a user of this name: the files `NAME.pem` and `NAME.key`.
    pub(crate) fn sign(&self, name: &str, until: &str) {
        let at = |extension: &str| self.path(&format!("{name}.{extension}"));
        run(Command::new("openssl")
            .args(["req", "-newkey", "rsa:2048", "-nodes", "-subj", &format!("/CN={name}")])
            .args(["-addext", "subjectAltName = DNS:localhost", "-keyout", &at("key"), "-out", &at("csr")]));
        run(Command::new("openssl")
            .args(["ca", "-batch", "-notext", "-config", &self.path("ca.cnf")])
            .args(["-cert", &self.path("ca.pem"), "-keyfile", &self.path("ca.key")])
            .args(["-startdate", "20200101000000Z", "-enddate", until])
            .args(["-in", &at("csr"), "-out", &at("pem")]));
        // Servers refuse a key that others can read.
        std::fs::set_permissions(at("key"), PermissionsExt::from_mode(0o600)).expect("it is ours");
        self.user.given(Path::new(&at("key")).to_owned());
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
