//! Creates certificates and keys with openssl.

use std::path::Path;
use std::process::{Command, Stdio};

/// An authority, a server at 127.0.0.1, two clients, one of which has renewed its certificate, and another
/// authority that has issued none of them.
const CERTIFICATES: &str = r"set -e
printf 'subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' > ext
for name in ca stranger; do
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $name.key -out $name.pem -days 2 \
    -subj /CN=$name -addext basicConstraints=critical,CA:TRUE
done
issue() { openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out $2.pem; }
for name in server alice bob; do
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $name.key -out $name.csr -subj /CN=$name
  issue $name $name
done
issue alice renewed";

/// Makes `ca`, `stranger`, `server`, `alice`, `bob` and `renewed`, each with a `.pem` and most with a `.key`.
pub fn make(folder: &Path) {
    openssl(folder, CERTIFICATES);
}

/// Makes a pair of keys, `NAME.key` and `NAME.pem`, of this kind.
pub fn make_keys(folder: &Path, name: &str, kind: &str) {
    let script = format!(
        "set -e\nopenssl genpkey {kind} -out {name}.key\nopenssl pkey -in {name}.key -pubout -out {name}.pem"
    );
    openssl(folder, &script);
}

fn openssl(folder: &Path, script: &str) {
    let made = Command::new("sh").args(["-c", script]).current_dir(folder).stderr(Stdio::null()).status();
    assert!(made.unwrap().success(), "openssl did not do: {script}");
}
