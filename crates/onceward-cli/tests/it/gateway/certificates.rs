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

/// Clients that are told apart by what their certificates name, beside those of [`make`]: `trusted.pem` has the authorities
/// `ca`, another of the same name, and `stranger`.
const IDENTITIES: &str = r#"set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout namesake.key -out namesake.pem -days 2 \
  -subj /CN=ca -addext basicConstraints=critical,CA:TRUE
cat ca.pem namesake.pem stranger.pem > trusted.pem
client() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $1.key -out $1.csr -subj $3
  printf 'basicConstraints=CA:FALSE\n' > $1.ext
  if [ -n "$4" ]; then echo subjectAltName=$4 >> $1.ext; fi
  openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days 2 -extfile $1.ext -out $1.pem
}
client uri ca /CN=one URI:spiffe://example/a,DNS:a.example
client uri-renewed ca /CN=two DNS:b.example,URI:spiffe://example/a
client uri-of-namesake namesake /CN=one URI:spiffe://example/a
client uri-of-stranger stranger /CN=one URI:spiffe://example/a
client other-uri ca /CN=one URI:spiffe://example/b,DNS:a.example
client dns ca /CN=one DNS:a.example,DNS:b.example
client dns-renewed ca /CN=two DNS:b.example,DNS:a.example
client other-dns ca /CN=one DNS:a.example
client subject ca /O=shop/CN=one
client subject-renewed ca /O=shop/CN=one IP:127.0.0.1
client other-subject ca /O=shop/CN=two
client nameless ca / IP:127.0.0.1"#;

/// Makes what [`make`] makes, and the clients of `IDENTITIES`.
pub fn make_identities(folder: &Path) {
    make(folder);
    openssl(folder, IDENTITIES);
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
