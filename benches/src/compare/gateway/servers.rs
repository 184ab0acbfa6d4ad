//! Starts the servers of a gateway benchmark, on free loopback ports, in a temporary folder.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Missing, Server, free_port, program, sibling};

/// An upstream, and in front of it nginx and the gateway.
pub struct GatewayServers {
    pub nginx_port: u16,
    pub gateway_port: u16,
    pub admin_port: u16,
    pub gateway: Server,
    pub nginx: Server,
    _upstream: Server,
    pub folder: TempDir,
}

impl GatewayServers {
    pub(super) fn start() -> Result<Self, Missing> {
        Self::start_with("", &[])
    }

    /// The gateway with this configuration and these environment variables.
    pub fn start_with(config: &str, variables: &[(&str, &str)]) -> Result<Self, Missing> {
        let (nginx, onceward) = (program("nginx", "nginx-light")?, sibling("onceward")?);
        let folder = tempfile::Builder::new().prefix("onceward-bench-").tempdir().unwrap();
        let (upstream_port, nginx_port) = (free_port(), free_port());
        let upstream =
            serve(&nginx, &folder.path().join("upstream"), upstream_port, &upstream(upstream_port));
        let plain =
            serve(&nginx, &folder.path().join("nginx"), nginx_port, &plain(nginx_port, upstream_port));
        let (gateway_port, admin_port) = (free_port(), free_port());
        let mut command = Command::new(onceward);
        command.args(["proxy", "--log", "error"]).envs(variables.iter().copied());
        if !config.is_empty() {
            let file = folder.path().join("onceward.toml");
            std::fs::write(&file, config).unwrap();
            command.arg("--config").arg(file);
        }
        command.args(["--upstream", &format!("http://127.0.0.1:{upstream_port}")]);
        command.args(["--listen", &format!("127.0.0.1:{gateway_port}")]);
        command.args(["--admin", &format!("127.0.0.1:{admin_port}")]);
        command.args(["--store", &format!("embedded:{}", folder.path().join("receipts").display())]);
        let gateway = Server::start(&command, &folder.path().join("gateway.log"), gateway_port);
        Ok(Self { nginx_port, gateway_port, admin_port, gateway, nginx: plain, _upstream: upstream, folder })
    }
}

/// An nginx with this configuration, all of its files in this folder.
fn serve(nginx: &Path, folder: &Path, port: u16, http: &str) -> Server {
    std::fs::create_dir(folder).unwrap();
    let text = format!("daemon off; pid nginx.pid; events {{ worker_connections 4096; }} {http}");
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(folder).arg("-e").arg(folder.join("error.log")).args(["-c", "nginx.conf"]);
    Server::start(&command, &folder.join("log"), port)
}

/// What both servers of nginx have in common: connections are kept, and nothing is written.
const COMMON: &str = "access_log off; keepalive_requests 1000000000; client_body_temp_path a; \
    proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;";

fn upstream(port: u16) -> String {
    format!(
        "worker_processes 1; http {{ {COMMON} server {{ listen 127.0.0.1:{port} reuseport; location / {{
            default_type application/json; return 201 '{{\"charge\":1,\"status\":\"ok\"}}'; }} }} }}"
    )
}

fn plain(port: u16, upstream: u16) -> String {
    format!(
        "worker_processes 2; http {{ {COMMON}
            upstream service {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
            server {{ listen 127.0.0.1:{port} reuseport; location / {{ proxy_pass http://service;
                proxy_http_version 1.1; proxy_set_header Connection \"\";
                proxy_set_header X-Forwarded-For $remote_addr; }} }} }}"
    )
}
