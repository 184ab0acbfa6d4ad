use super::*;

#[test]
fn a_client_whose_certificate_does_not_pass_is_refused() {
    let none = RootCertStore::empty();
    let garbage = [CertificateDer::from(vec![0x30, 0])];
    for shown in [None, Some(&[][..]), Some(&garbage[..])] {
        let refused = identity(shown, &none).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{shown:?}");
    }
}
