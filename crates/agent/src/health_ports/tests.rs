//! Questions about health, at addresses of the loopback, each test at its own.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::visitors::AT_ONE;
use super::*;

const PORT: NonZeroU16 = NonZeroU16::new(30_900).unwrap();

fn ports() -> (HealthPorts, UnboundedReceiver<Report>) {
    let (reports, told) = unbounded_channel();
    (HealthPorts::within(8, Visitors::default(), reports), told)
}

fn asked(ready: usize) -> BTreeMap<NonZeroU16, Asked> {
    let service = ("shop".to_owned(), "web".to_owned());
    let health = Some(Health { service, ready, is_led: true });
    [(PORT, Asked { tenant: None, uid: "uid-of-web".into(), health })].into()
}

/// The whole answer to these words; none where nobody listens.
async fn say(ip: IpAddr, words: &str) -> Option<String> {
    let mut stream = TcpStream::connect((ip, PORT.get())).await.ok()?;
    stream.write_all(words.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer.to_lowercase())
}

async fn get(ip: IpAddr) -> Option<String> {
    say(ip, "GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await
}

#[tokio::test]
async fn a_port_says_how_many_are_ready_here_and_whether_to_come() {
    let (mut ports, _) = ports();
    let at = [IpAddr::from([127, 78, 0, 1]), IpAddr::from([127, 78, 0, 2])];
    ports.answer(&at, &asked(2));
    for ip in at {
        let said = get(ip).await.unwrap();
        assert!(said.starts_with("http/1.1 200 "), "{said}");
        assert!(said.contains("\r\nx-load-balancing-endpoint-weight: 2\r\n"), "{said}");
        assert!(said.contains("\r\ncontent-type: application/json\r\n"), "{said}");
        let body = said.split("\r\n\r\n").nth(1).unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let service = serde_json::json!({"namespace": "shop", "name": "web"});
        assert_eq!(body["service"], service);
        assert_eq!(
            (&body["localendpoints"], &body["serviceproxyhealthy"]),
            (&2.into(), &true.into())
        );
    }
    ports.answer(&at, &asked(0));
    let said = get(at[0]).await.unwrap();
    assert!(said.starts_with("http/1.1 503 ") && said.contains("weight: 0\r\n"), "{said}");
    assert!(say(at[0], "POST / HTTP/1.1\r\n\r\n").await.unwrap().starts_with("http/1.1 405 "));
}

#[tokio::test]
async fn who_is_ready_where_the_kernel_leads_nobody_is_not_to_be_come_to() {
    let (mut ports, _) = ports();
    let at = [IpAddr::from([127, 78, 0, 3])];
    let mut asked = asked(2);
    asked.get_mut(&PORT).unwrap().health.as_mut().unwrap().is_led = false;
    ports.answer(&at, &asked);
    let said = get(at[0]).await.unwrap();
    assert!(said.starts_with("http/1.1 503 ") && said.contains("weight: 2\r\n"), "{said}");
}

#[tokio::test]
async fn a_port_is_there_while_it_is_asked_about_and_at_the_nodes_addresses_alone() {
    let (mut ports, _) = ports();
    let [one, other] = [[127, 78, 0, 4], [127, 78, 0, 5]].map(IpAddr::from);
    let mut unknown = asked(1);
    unknown.get_mut(&PORT).unwrap().health = None;
    ports.answer(&[one], &unknown);
    assert_eq!(get(one).await, None, "nothing is known yet");
    ports.answer(&[one], &asked(1));
    assert!(get(one).await.is_some() && get(other).await.is_none());
    ports.answer(&[one], &unknown);
    assert!(get(one).await.unwrap().contains("weight: 1\r\n"), "what was said stands");
    ports.answer(&[other], &asked(1));
    assert!(get(other).await.is_some());
    assert_eq!(get(one).await, None);
    ports.answer(&[other], &BTreeMap::new());
    assert_eq!(get(other).await, None);
}

#[tokio::test]
async fn a_port_that_a_program_has_is_told_of_once_and_had_when_it_is_free_and_others_are_served() {
    let (mut ports, mut told) = ports();
    let at = [IpAddr::from([127, 78, 0, 6]), IpAddr::from([127, 78, 0, 7])];
    let program = TcpListener::bind((at[0], PORT.get())).await.unwrap();
    ports.answer(&at, &asked(1));
    ports.answer(&at, &asked(1));
    assert!(get(at[1]).await.is_some());
    let Some(Report::Service(report)) = told.recv().await else { panic!("a service is told of") };
    assert!(report.note.contains("127.78.0.6:30900"), "{}", report.note);
    assert!(told.try_recv().is_err(), "once");
    drop(program);
    ports.answer(&at, &asked(1));
    assert!(get(at[0]).await.is_some());
}

#[tokio::test]
async fn there_are_no_more_ports_than_there_may_be() {
    let (mut ports, mut told) = ports();
    let at: Vec<IpAddr> = (1..=9).map(|last| IpAddr::from([127, 78, 1, last])).collect();
    ports.answer(&at, &asked(1));
    let mut answered = 0;
    for ip in &at {
        answered += usize::from(get(*ip).await.is_some());
    }
    assert_eq!(answered, 8);
    assert!(told.recv().await.is_some());
    let mut of_acme = asked(1);
    of_acme.get_mut(&PORT).unwrap().tenant = Some("acme".to_owned());
    ports.answer(&[], &of_acme);
    ports.answer(&at, &of_acme);
    assert_eq!(ports.listening.len(), 4, "a tenant leaves as many to others");
}

#[tokio::test]
async fn those_who_say_nothing_keep_nobody_from_an_answer() {
    let (mut ports, _) = ports();
    let ip = IpAddr::from([127, 78, 0, 8]);
    ports.answer(&[ip], &asked(1));
    let mut silent = Vec::new();
    for _ in 0..3 * AT_ONE {
        silent.push(TcpStream::connect((ip, PORT.get())).await.unwrap());
    }
    assert!(get(ip).await.is_some_and(|said| said.starts_with("http/1.1 200 ")));
}
