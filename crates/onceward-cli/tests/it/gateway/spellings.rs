//! Requests that are spelled so that the gateway and the service could read them differently.

use super::stage::{Gateway, Home, Service};
use crate::process::onceward;

fn stage(config: &str, flags: &[&str]) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start_with(&service.url(), flags);
    (home, service, gateway)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

const REQUIRED: &str = "[[route]]\npath = \"/charges\"\nkey = \"required\"";

#[test]
fn no_spelling_of_a_path_passes_a_required_key() {
    let flags = ["--path-case", "ignore", "--trailing-slash", "ignore"];
    let (_home, service, gateway) = stage(REQUIRED, &flags);
    for path in [
        "/charges",
        "/Charges",
        "/charges/",
        "//charges",
        "/x/../charges",
        "/x/%2e%2e/charges",
        "/./charges",
        "/%63harges",
        "/charges;a",
        "/x%2f..%2fcharges",
        "/charges%2f",
    ] {
        let said = gateway.raw(
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .as_bytes(),
        );
        assert_eq!(status(&said), 400, "{path}\n{said}");
    }
    let said =
        gateway.raw(b"post /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&said), 400, "{said}");
    assert_eq!(service.effects(), 0);
    // Spellings that mean the same are one intent, and are forwarded as they came.
    for path in ["/Charges", "/charges/", "/%63harges", "/charges"] {
        assert_eq!(gateway.post(path, &[("Idempotency-Key", "a")], "{}").status, 201, "{path}");
    }
    let [request] = &service.received()[..] else { panic!("{:?}", service.received()) };
    assert_eq!(request.line, "POST /Charges HTTP/1.1");
}

/// A service that drops parameters does the same work for all of these.
#[test]
fn parameters_of_a_path_make_no_second_operation() {
    let (_home, service, gateway) = stage(REQUIRED, &[]);
    let key = [("Idempotency-Key", "a")];
    for path in ["/charges;a", "/charges;a=1", "/charges;"] {
        let refused = gateway.post(path, &key, "{}");
        assert!(refused.status == 400 && refused.body.contains("path_parameters"), "{path}: {refused:?}");
    }
    assert_eq!(gateway.post("/charges", &key, "{}").status, 201);
    assert_eq!(service.effects(), 1);

    // The service is said to drop them: one intent, forwarded as it came.
    let (_home, service, gateway) = stage(REQUIRED, &["--path-parameters", "ignore"]);
    assert_eq!(gateway.post("/charges;a=1", &[], "{}").status, 400, "the key is required");
    for path in ["/charges;a=1", "/charges", "/charges;b"] {
        assert_eq!(gateway.post(path, &key, "{}").body, "{\"charge\":1}", "{path}");
    }
    let [request] = &service.received()[..] else { panic!("{:?}", service.received()) };
    assert_eq!(request.line, "POST /charges;a=1 HTTP/1.1");

    // Or to make a difference.
    let (_home, service, gateway) = stage(REQUIRED, &["--path-parameters", "exact"]);
    assert_eq!(gateway.post("/charges;a=1", &[], "{}").status, 400, "the key is required");
    for path in ["/charges;a=1", "/charges", "/charges;b", "/charges"] {
        assert_eq!(gateway.post(path, &key, "{}").status, 201, "{path}");
    }
    assert_eq!(service.effects(), 3);
}

/// Receipts of paths with parameters would not be found any more.
#[test]
fn a_gateway_that_begins_to_ignore_parameters_is_not_started_on_former_receipts() {
    let (home, service, gateway) = stage("", &["--path-parameters", "exact"]);
    gateway.kill();
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let args = ["proxy", "--upstream", &service.url(), "--store", &store, "--path-parameters", "ignore"];
    let listeners = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let refused = onceward(&[&args[..], &listeners].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("path_parameters"), "{said}");
    // To refuse them changes no id.
    drop(home.start(&service.url()));
}

#[test]
fn ambiguous_paths_pass_where_the_operator_says_so() {
    let (_home, service, gateway) = stage("normalise = false", &[]);
    assert_eq!(gateway.post("/a%2Fb//c", &[], "{}").status, 201);
    assert_eq!(service.received()[0].line, "POST /a%2Fb//c HTTP/1.1");
}

#[test]
fn a_path_does_not_leave_the_base_of_the_upstream() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&format!("{}/api", service.url()));
    for path in ["/../admin", "/%2e%2e/admin", "/x/../../admin", "/..;/admin", "/..%2fadmin", "/..%5cadmin"] {
        let said =
            gateway.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
        assert_eq!(status(&said), 400, "{path}\n{said}");
    }
    assert_eq!(service.effects(), 0);
}

#[test]
fn a_request_has_one_host_one_framing_and_no_credentials_in_its_target() {
    let (_home, service, gateway) = stage("", &[]);
    for (head, expected) in [
        ("POST /c HTTP/1.1\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: u:p@h\r\n", 400),
        ("POST http://u:p@h/c HTTP/1.1\r\nHost: h\r\n", 400),
        ("POST * HTTP/1.1\r\nHost: a\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
    ] {
        for key in ["", "Idempotency-Key: a\r\n"] {
            let end = if expected == 501 { "\r\n0\r\n\r\n" } else { "Content-Length: 0\r\n\r\n" };
            let said = gateway.raw(format!("{head}{key}Connection: close\r\n{end}").as_bytes());
            assert_eq!(status(&said), expected, "{head}\n{said}");
        }
    }
    assert_eq!(service.effects(), 0);
    let said = gateway.raw(b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 201, "{said}");
    assert_eq!(service.received()[0].line, "OPTIONS * HTTP/1.1");
}

#[test]
fn a_clients_bad_chunk_is_the_clients_fault() {
    let (_home, service, gateway) = stage("", &["--body-grace", "300ms"]);
    for key in ["", "Idempotency-Key: a\r\n"] {
        let head = format!("POST /c HTTP/1.1\r\nHost: a\r\n{key}Transfer-Encoding: chunked\r\n\r\n");
        let said = gateway.raw(format!("{head}5\r\nhello\r\nxyz\r\n").as_bytes());
        assert_eq!(status(&said), 400, "{said}");
        let said = gateway.raw(format!("{head}5\r\nhel").as_bytes());
        assert_eq!(status(&said), 408, "{said}");
    }
    assert_eq!(service.effects(), 0);
}

#[test]
fn forwarded_fields_are_believed_only_from_trusted_proxies() {
    let claimed = [
        ("X-Forwarded-For", "198.51.100.9"),
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=198.51.100.9"),
    ];
    let (_home, service, gateway) = stage("", &[]);
    gateway.post("/c", &claimed, "{}");
    let request = &service.received()[0];
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert_ne!(request.field("x-forwarded-host"), Some("evil"));
    assert!(!request.field("forwarded").unwrap().contains("198.51.100.9"));
    let (_home, service, gateway) = stage("trusted_proxies = [\"127.0.0.0/8\"]", &[]);
    gateway.post("/c", &claimed, "{}");
    let request = &service.received()[0];
    assert_eq!(request.field("x-forwarded-for"), Some("198.51.100.9, 127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(request.field("x-forwarded-host"), Some("evil"));
}

/// What a CGI service reads: `-` and `_` are one character, and of two lines it takes either.
fn variables(service: &Service) -> Vec<(String, String)> {
    let [request] = &service.received()[..] else { panic!("{:?}", service.received()) };
    let variable = |(name, value): &(String, String)| (name.replace('-', "_"), value.clone());
    request.fields.iter().map(variable).collect()
}

/// Each of these would be read as a field by which the gateway decides: what is done, who asks, under which key.
const LOOK_ALIKES: [(&str, &str); 14] = [
    ("Onceward_Fence", "evil"),
    ("Onceward_Attempt", "evil"),
    ("Idempotency_Key", "evil"),
    ("X_Forwarded_For", "evil"),
    ("X_HTTP_Method_Override", "evil"),
    ("X_Http-Method_Override", "evil"),
    ("X_Api_Key", "evil"),
    ("Api_Key", "evil"),
    ("If_Match", "evil"),
    ("Content_Encoding", "evil"),
    ("X_Order_Key", "evil"),
    ("X_Api_Version", "evil"),
    ("X_Caller", "evil"),
    ("X_Tenant", "evil"),
];

const READ_BY_A_ROUTE: &str = "[defaults]\nkey_from = \"header:X-Order-Key\"\nscope = \"header:X-Caller\"\n\
     anonymous = \"share\"\nfingerprint = { headers = [\"X-Api-Version\"] }";

#[test]
fn look_alike_fields_do_not_reach_the_service() {
    let fields =
        [&LOOK_ALIKES[..], &[("X-Order-Key", "a"), ("X-Tenant", "acme"), ("Plain_Name", "1")]].concat();
    for (flags, plain_name) in [(&[][..], None), (&["--underscore-fields", "true"], Some("1"))] {
        let (_home, service, gateway) = stage(READ_BY_A_ROUTE, flags);
        assert_eq!(gateway.post("/c", &fields, "{}").status, 201);
        let variables = variables(&service);
        let found = |name| variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        assert!(!variables.iter().any(|(_, value)| value == "evil"), "{variables:?}");
        assert_eq!((found("x_order_key"), found("x_tenant")), (Some("a"), Some("acme")));
        assert_eq!(found("plain_name"), plain_name);
    }
}

#[test]
fn an_upgrade_to_anything_but_websocket_is_not_passed() {
    let (_home, service, gateway) = stage("", &[]);
    let said = gateway.raw(
        b"GET /c HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n\r\n",
    );
    assert_eq!(status(&said), 201, "{said}");
    let request = &service.received()[0];
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(request.field(name), None, "{name}");
    }
}
