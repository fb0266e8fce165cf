//! The matrix as people read it: clients down, servers across, one sign for each protocol.

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use super::Try;
use super::judge::{Member, Verdict, violation};

/// What each sign means, for below the table.
pub(crate) const LEGEND: &str = "\
Each cell shows TCP, UDP and ICMP:
  ✓  reached, and the server saw the client's own address
  =  that address is also in the client's own network, and the pod there answered
  ·  nothing passed
  ✗  not as isolation promises";

/// The table. `colour` only where it is seen by a person.
pub(crate) fn render(members: &[Member], tries: &[Try], colour: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let heads =
        members.iter().map(|server| Cell::new(head(server)).set_alignment(CellAlignment::Center));
    table.set_header([Cell::new("from \\ to")].into_iter().chain(heads));
    for client in members {
        let cells = members.iter().map(|server| cell(client, server, tries, colour));
        table.add_row([Cell::new(&client.pod)].into_iter().chain(cells));
    }
    table.trim_fmt()
}

fn head(server: &Member) -> String {
    let (namespace, name) = server.pod.split_once('/').unwrap_or(("", &server.pod));
    format!("{namespace}\n{name}\n{}\n{}", server.ip, server.node)
}

fn cell(client: &Member, server: &Member, tries: &[Try], colour: bool) -> Cell {
    let here: Vec<_> =
        tries.iter().filter(|one| one.client == client.pod && one.server == server.pod).collect();
    let signs: Vec<_> = here.iter().map(|one| sign(client, server, &one.verdict)).collect();
    let cell = Cell::new(signs.concat()).set_alignment(CellAlignment::Center);
    match (colour, signs.contains(&"✗"), signs.contains(&"✓")) {
        (false, _, _) => cell,
        (true, true, _) => cell.fg(Color::Red),
        (true, false, true) => cell.fg(Color::Green),
        (true, false, false) => cell.fg(Color::DarkGrey),
    }
}

fn sign(client: &Member, server: &Member, verdict: &Verdict) -> &'static str {
    match verdict {
        _ if violation(client, server, verdict).is_some() => "✗",
        Verdict::Reached => "✓",
        Verdict::Twin(_) => "=",
        Verdict::Nothing(_) => "·",
        Verdict::Masked(_) | Verdict::Foreign(_) => "✗",
    }
}

#[cfg(test)]
mod tests {
    use atoll_toolbox::Protocol;

    use super::*;

    fn member(tenant: &str, name: &str, last: u8) -> Member {
        Member {
            pod: format!("{tenant}/{name}"),
            tenant: tenant.into(),
            network: "default".into(),
            ip: [10, 0, 0, last].into(),
            node: "node1".into(),
        }
    }

    fn tries(client: &Member, server: &Member, verdict: &Verdict) -> Vec<Try> {
        let one = |protocol| Try {
            client: client.pod.clone(),
            server: server.pod.clone(),
            protocol,
            verdict: verdict.clone(),
        };
        Protocol::ALL.map(one).into()
    }

    #[test]
    fn a_row_shows_what_its_client_got_from_each_server() {
        let members =
            [member("acme", "web", 5), member("acme", "db", 6), member("globex", "solo", 22)];
        let [web, db, solo] = &members;
        let nothing = Verdict::Nothing("no answer".into());
        let all = [
            tries(web, db, &Verdict::Reached),
            tries(web, solo, &nothing),
            tries(db, web, &nothing),
            tries(db, solo, &Verdict::Foreign("globex/solo".into())),
        ]
        .concat();
        let text = render(&members, &all, false);
        let row = |pod: &str| {
            text.lines().find(|line| line.contains(&format!("│ {pod}"))).unwrap().to_owned()
        };
        assert!(row("acme/web").contains("✓✓✓") && row("acme/web").contains("···"), "{text}");
        assert_eq!(row("acme/db").matches('✗').count(), 6, "silence inside and a leak: {text}");
    }
}
