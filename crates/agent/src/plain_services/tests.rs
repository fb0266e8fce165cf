//! What is heard of the API, and what becomes of it in a kernel that is made of maps.

use anyhow::bail;
use atoll_plan::Side;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::health_ports::Visitors;

/// A kernel that can be told to refuse.
#[derive(Default)]
struct Maps {
    services: BTreeMap<ServiceKey, Service>,
    links: Vec<String>,
    /// Whether clients from outside were to be served, each time that it was said.
    entered: Vec<bool>,
    has_no_uplink: bool,
    addresses: Vec<IpAddr>,
    writes: usize,
    refuses: bool,
}

impl PlainKernel for Maps {
    fn set(&mut self, wanted: &BTreeMap<ServiceKey, Service>) -> Result<()> {
        self.writes += 1;
        if self.refuses {
            bail!("no");
        }
        self.services.clone_from(wanted);
        Ok(())
    }

    fn put(&mut self, key: ServiceKey, service: Option<&Service>) -> Result<()> {
        self.writes += 1;
        if self.refuses {
            bail!("no");
        }
        match service {
            Some(service) => drop(self.services.insert(key, service.clone())),
            None => drop(self.services.remove(&key)),
        }
        Ok(())
    }

    async fn serve(&mut self, link: &str) -> Result<()> {
        if link == "gone" {
            bail!("link gone does not exist");
        }
        self.links.push(link.to_owned());
        Ok(())
    }

    async fn serve_outside(&mut self, is_needed: bool) -> Result<()> {
        self.entered.push(is_needed);
        if self.has_no_uplink {
            bail!("no");
        }
        Ok(())
    }

    async fn outside_addresses(&mut self) -> Result<Vec<IpAddr>> {
        if self.has_no_uplink { bail!("no") } else { Ok(self.addresses.clone()) }
    }
}

fn desk() -> Desk<Maps> {
    let outside = vec!["192.0.2.1".parse().unwrap()];
    let health = HealthPorts::within(8, Visitors::default(), unbounded_channel().0);
    Desk::new(Register::new("node1", None, outside), Maps::default(), health)
}

fn namespaces(names: &[&str]) -> News {
    News::Namespaces(Delta::All(names.iter().map(|name| ((*name).to_owned(), ())).collect()))
}

fn service(ip: &str) -> ServiceFront {
    let spec = json!({"clusterIPs": [ip], "ports": [{"port": 80}]});
    let object = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}));
    ServiceFront::read(&object.unwrap()).unwrap()
}

/// `web` with a node port.
fn entered_service(ip: &str) -> Delta<String, ServiceFront> {
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let spec = json!({"type": "NodePort", "clusterIPs": [ip], "ports": ports});
    let object = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}));
    Delta::Put("web".to_owned(), ServiceFront::read(&object.unwrap()).unwrap())
}

fn slice(ip: &str) -> PlainGroup {
    let labels = json!({"kubernetes.io/service-name": "web"});
    let object = serde_json::from_value(json!({
        "metadata": {"name": "web-1", "labels": labels}, "addressType": "IPv4",
        "ports": [{"port": 8080}], "endpoints": [{"addresses": [ip]}],
    }));
    PlainGroup::read(&object.unwrap()).unwrap()
}

/// All services and all slices of a namespace: `web` at this address, and one behind it.
fn all_of(namespace: &str, ip: &str) -> [News; 2] {
    let services = [("web".to_owned(), service(ip))].into();
    let slices = [("web-1".to_owned(), slice("10.244.1.2"))].into();
    [
        News::Services(namespace.to_owned(), Delta::All(services)),
        News::Slices(namespace.to_owned(), Delta::All(slices)),
    ]
}

fn nothing_of(namespace: &str) -> [News; 2] {
    [
        News::Services(namespace.to_owned(), Delta::All(BTreeMap::new())),
        News::Slices(namespace.to_owned(), Delta::All(BTreeMap::new())),
    ]
}

fn hear(desk: &mut Desk<Maps>, news: impl IntoIterator<Item = News>) {
    news.into_iter().for_each(|news| desk.register.hear(news));
}

fn ask(desk: &mut Desk<Maps>, link: &str) -> oneshot::Receiver<AgentReply> {
    let (reply, answer) = oneshot::channel();
    desk.waiting.push(MadeLinks { links: vec![link.to_owned()], reply });
    answer
}

#[tokio::test]
async fn nothing_is_written_or_answered_before_everything_was_seen_once() {
    let mut desk = desk();
    let mut answer = ask(&mut desk, "veth1");
    hear(&mut desk, [namespaces(&["default", "infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.work().await;
    assert_eq!(desk.kernel.writes, 0);
    assert!(answer.try_recv().is_err());
    hear(&mut desk, nothing_of("default"));
    desk.work().await;
    assert_eq!(desk.kernel.services.len(), 1);
    assert_eq!(answer.await.unwrap(), AgentReply::Done);
    assert_eq!(desk.kernel.links, ["veth1"]);
}

#[tokio::test]
async fn a_namespace_that_becomes_a_tenants_takes_its_services_out_and_stays_unheard() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra", "other"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    hear(&mut desk, all_of("other", "10.96.0.8"));
    desk.work().await;
    assert_eq!(desk.kernel.services.len(), 2);
    hear(&mut desk, [News::Namespaces(Delta::Gone("infra".to_owned()))]);
    assert_eq!(desk.register.namespaces(), ["other".to_owned()].into());
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.work().await;
    let left: Vec<_> = desk.kernel.services.keys().map(|key| key.ip.to_string()).collect();
    assert_eq!(left, ["10.96.0.8"]);
}

#[tokio::test]
async fn a_change_writes_what_it_touches_and_a_list_takes_away_what_it_has_not() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.work().await;
    let put = Delta::Put("web-2".to_owned(), slice("10.244.2.2"));
    hear(&mut desk, [News::Slices("infra".to_owned(), put)]);
    desk.work().await;
    let backends = |desk: &Desk<Maps>| desk.kernel.services.values().next().unwrap().backends.len();
    assert_eq!((desk.kernel.writes, backends(&desk)), (2, 2));
    desk.work().await;
    assert_eq!(desk.kernel.writes, 2, "nothing was touched");
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.work().await;
    assert_eq!(backends(&desk), 1);
}

#[tokio::test]
async fn what_a_kernel_refused_is_written_whole_when_it_is_tried_again() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.kernel.refuses = true;
    let mut answer = ask(&mut desk, "veth1");
    desk.work().await;
    assert!(desk.is_late() && answer.try_recv().is_err());
    desk.kernel.refuses = false;
    desk.work().await;
    assert!(!desk.is_late());
    assert_eq!(desk.kernel.services.len(), 1);
    assert_eq!(answer.await.unwrap(), AgentReply::Done);
}

#[tokio::test]
async fn a_link_that_cannot_be_served_is_refused_by_name_and_the_next_is_served() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&[])]);
    let (gone, there) = (ask(&mut desk, "gone"), ask(&mut desk, "veth1"));
    desk.work().await;
    let AgentReply::Failed(error) = gone.await.unwrap() else { panic!("there is no such link") };
    assert!(error.msg.contains("behind link gone"), "{}", error.msg);
    assert_eq!(there.await.unwrap(), AgentReply::Done);
}

#[tokio::test]
async fn clients_from_outside_are_served_while_there_is_a_node_port() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.work().await;
    assert_eq!(desk.kernel.entered, [false]);
    hear(&mut desk, [News::Services("infra".to_owned(), entered_service("10.96.0.9"))]);
    desk.work().await;
    desk.work().await;
    assert_eq!(desk.kernel.entered, [false, true], "it was said once");
    desk.is_entered = None;
    desk.work().await;
    assert_eq!(desk.kernel.entered, [false, true, true], "somebody looked again");
    hear(&mut desk, nothing_of("infra"));
    desk.work().await;
    assert_eq!(desk.kernel.entered.last(), Some(&false));
}

#[tokio::test]
async fn node_ports_follow_the_addresses_of_the_node() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    hear(&mut desk, [News::Services("infra".to_owned(), entered_service("10.96.0.9"))]);
    desk.work().await;
    let entered = |desk: &Desk<Maps>| {
        let outside = desk.kernel.services.keys().filter(|key| key.side == Side::Outside);
        outside.map(|key| key.ip.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(entered(&desk), ["192.0.2.1"]);
    desk.kernel.addresses = vec!["192.0.2.7".parse().unwrap()];
    desk.look().await;
    desk.work().await;
    assert_eq!(entered(&desk), ["192.0.2.7"]);
    desk.kernel.has_no_uplink = true;
    desk.look().await;
    desk.work().await;
    assert_eq!(entered(&desk), ["192.0.2.7"], "nobody saw that it has others");
}

#[tokio::test]
async fn an_uplink_that_refuses_is_asked_again_and_no_pod_waits_for_it() {
    let mut desk = desk();
    hear(&mut desk, [namespaces(&["infra"])]);
    hear(&mut desk, all_of("infra", "10.96.0.9"));
    desk.kernel.has_no_uplink = true;
    let answer = ask(&mut desk, "veth1");
    desk.work().await;
    assert_eq!(answer.await.unwrap(), AgentReply::Done);
    assert!(desk.is_late());
    desk.kernel.has_no_uplink = false;
    desk.work().await;
    assert!(!desk.is_late());
    assert_eq!(desk.kernel.entered, [false, false]);
}

/// `web` as a load balancer whose connections stay on their node, and one of this node behind it.
fn local_balancer() -> [News; 2] {
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30_901, "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    let object = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}));
    let front = ServiceFront::read(&object.unwrap()).unwrap();
    let labels = json!({"kubernetes.io/service-name": "web"});
    let object = serde_json::from_value(json!({
        "metadata": {"name": "web-1", "labels": labels}, "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": ["10.244.1.2"], "nodeName": "node1"}],
    }));
    let group = PlainGroup::read(&object.unwrap()).unwrap();
    [
        News::Services("infra".to_owned(), Delta::All([("web".to_owned(), front)].into())),
        News::Slices("infra".to_owned(), Delta::All([("web-1".to_owned(), group)].into())),
    ]
}

/// The first line of what is said of the load balancer; none where nobody listens.
async fn health() -> Option<String> {
    let mut stream = TcpStream::connect("127.78.2.1:30901").await.ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().next().map(ToOwned::to_owned)
}

#[tokio::test]
async fn the_outside_is_told_how_a_load_balancer_of_no_tenant_fares_while_it_is_nobodys() {
    let mut desk = desk();
    desk.kernel.addresses = vec!["127.78.2.1".parse().unwrap()];
    desk.look().await;
    hear(&mut desk, [namespaces(&["infra"])]);
    let [services, slices] = local_balancer();
    hear(&mut desk, [services]);
    desk.work().await;
    assert_eq!(health().await, None, "not everything was seen yet");
    desk.kernel.refuses = true;
    hear(&mut desk, [slices]);
    desk.work().await;
    assert_eq!(health().await.as_deref(), Some("HTTP/1.1 503 Service Unavailable"), "not led");
    desk.kernel.refuses = false;
    desk.work().await;
    assert_eq!(health().await.as_deref(), Some("HTTP/1.1 200 OK"));
    let gone = Delta::Gone("web-1".to_owned());
    hear(&mut desk, [News::Slices("infra".to_owned(), gone)]);
    desk.work().await;
    assert_eq!(health().await.as_deref(), Some("HTTP/1.1 503 Service Unavailable"));
    hear(&mut desk, [News::Namespaces(Delta::Gone("infra".to_owned()))]);
    desk.work().await;
    assert_eq!(health().await, None);
}
