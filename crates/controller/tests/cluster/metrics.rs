//! What Prometheus reads.

use std::net::SocketAddr;

use atoll_controller::ControllerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::subject::{Subject, eventually, make, pod, remove_pods};

/// An address of this machine that no other process of these tests has, at a port that the kernel gives
/// nobody.
fn free_address() -> SocketAddr {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    SocketAddr::from(([127, high | 0x80, low, 1], 20_965))
}

async fn page(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: atoll\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

async fn line_comes(address: SocketAddr, line: &str) {
    eventually(|| async { page(address).await?.lines().find(|it| *it == line).map(drop) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subnet_without_a_free_address_is_in_the_metrics() {
    let subject = Subject::new("metrics").await;
    let address = free_address();
    let config = ControllerConfig { metrics_address: Some(address), ..ControllerConfig::default() };
    let _controller = subject.start(config);
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/30").await;
    line_comes(address, "atoll_networks{phase=\"active\"} 1").await;
    line_comes(address, "atoll_exhausted_subnets 0").await;
    make(&subject.pods(&acme), pod("web")).await;
    line_comes(address, "atoll_exhausted_subnets 1").await;
    line_comes(address, "atoll_addresses{family=\"ipv4\",state=\"used\"} 1").await;
    make(&subject.pods(&acme), pod("late")).await;
    line_comes(address, "atoll_waiting_pods 1").await;
    let text = page(address).await.unwrap();
    assert!(!text.contains(&acme), "no name of a tenant is told: {text}");
    remove_pods(&subject.pods(&acme)).await;
    subject.remove_tenant(&acme).await;
}
