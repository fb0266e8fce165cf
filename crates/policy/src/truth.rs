//! Truth tables: who reaches whom by what, and what would change if policies did.
//!
//! The rule kept here: a table asks for every port at which a verdict may change, so two tables that
//! are equal differ for no port at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use atoll_types::{Label, NetAddr};

use crate::compiler::{Compiler, Event};
use crate::decision::Explanation;
use crate::facts::Protocol;
use crate::report::Report;

/// A kind of traffic that a table asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// The protocol.
    pub protocol: Protocol,
    /// The destination port; 0 where the protocol has none.
    pub port: u16,
}

/// One cell: traffic from one address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The kind of traffic.
    pub probe: Probe,
    /// The sender.
    pub from: NetAddr,
    /// The receiver.
    pub to: NetAddr,
}

/// Who reaches whom inside a tenant: all ordered pairs of addresses in one network and family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthTable {
    names: BTreeMap<NetAddr, String>,
    cells: BTreeMap<Cell, Explanation>,
}

/// A cell whose answer changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The cell.
    pub cell: Cell,
    /// What is decided now.
    pub before: Explanation,
    /// What would be decided.
    pub after: Explanation,
}

/// What would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    names: BTreeMap<NetAddr, String>,
    /// The cells that would pass and do not, or do and would not.
    pub changed: Vec<Changed>,
    /// What of the new policies would not be enforced as written.
    pub reports: Vec<Report>,
}

/// The kinds of traffic by which a compiler's verdicts can differ: every first port of a block of
/// ports, every port right behind one, and one port of each protocol.
pub fn probes(compiler: &Compiler) -> BTreeSet<Probe> {
    let entries = compiler.tables().ports.iter();
    let edges = entries.filter_map(|(key, _)| Some((key.protocol?, key.ports)));
    let edges = edges.flat_map(|(protocol, block)| {
        let size = 1_u32 << (16 - u32::from(block.bits));
        let behind = u16::try_from(u32::from(block.port) + size).ok();
        [Some(block.port), behind].into_iter().flatten().map(move |port| Probe { protocol, port })
    });
    let each = Protocol::ALL.map(|protocol| Probe { protocol, port: 0 });
    edges.chain(each).collect()
}

impl TruthTable {
    /// The table of a tenant.
    pub fn of(compiler: &Compiler, tenant: &Label, probes: &BTreeSet<Probe>) -> Self {
        let ends = compiler.endpoints().filter(|(owner, ..)| *owner == tenant);
        let names: BTreeMap<NetAddr, String> =
            ends.map(|(_, pod, address)| (address, pod.to_string())).collect();
        let pairs = names.keys().flat_map(|from| names.keys().map(move |to| (*from, *to)));
        let reachable = pairs.filter(|(from, to)| {
            from.network == to.network && from.ip.is_ipv4() == to.ip.is_ipv4()
        });
        let cells = reachable
            .flat_map(|(from, to)| probes.iter().map(move |probe| Cell { probe: *probe, from, to }))
            .map(|cell| (cell, asked(compiler, cell)))
            .collect();
        TruthTable { names, cells }
    }

    /// Whether a cell passes.
    pub fn passes(&self, cell: &Cell) -> Option<bool> {
        self.cells.get(cell).map(Explanation::accepts)
    }

    /// Every cell.
    pub fn iter(&self) -> impl Iterator<Item = (&Cell, &Explanation)> {
        self.cells.iter()
    }

    fn changed_to(&self, after: &TruthTable) -> Vec<Changed> {
        let both = self
            .cells
            .iter()
            .filter_map(|(cell, before)| Some((cell, before, after.cells.get(cell)?)));
        both.filter(|(_, before, after)| before.accepts() != after.accepts())
            .map(|(cell, before, after)| Changed {
                cell: *cell,
                before: before.clone(),
                after: after.clone(),
            })
            .collect()
    }
}

fn asked(compiler: &Compiler, cell: Cell) -> Explanation {
    compiler.explain(cell.from, cell.to, cell.probe.protocol, cell.probe.port)
}

/// What would change inside a tenant if these events came. Nothing comes.
pub fn what_if(compiler: &Compiler, tenant: &Label, events: &[Event]) -> Difference {
    let mut would = compiler.clone();
    for event in events {
        would.apply(event.clone());
    }
    let probes: BTreeSet<Probe> = probes(compiler).union(&probes(&would)).copied().collect();
    let before = TruthTable::of(compiler, tenant, &probes);
    let after = TruthTable::of(&would, tenant, &probes);
    let known: BTreeSet<&Report> = compiler.reports().collect();
    Difference {
        changed: before.changed_to(&after),
        names: before.names.into_iter().chain(after.names).collect(),
        reports: would.reports().filter(|report| !known.contains(report)).cloned().collect(),
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Other => f.write_str("other protocols"),
            protocol => write!(f, "{protocol} {}", self.port),
        }
    }
}

impl fmt::Display for TruthTable {
    /// One square for each kind of traffic: `.` passes, `X` does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |cell: &Cell| match self.passes(cell) {
            Some(true) => '.',
            Some(false) => 'X',
            None => ' ',
        };
        let probes: BTreeSet<Probe> = self.cells.keys().map(|cell| cell.probe).collect();
        probes.into_iter().try_for_each(|probe| square(f, probe, &self.names, sign))
    }
}

impl fmt::Display for Difference {
    /// Squares with `+` for what would pass and `-` for what would not, then each change in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changed.is_empty() {
            writeln!(f, "nothing changes")?;
        }
        let signs: BTreeMap<Cell, char> = self
            .changed
            .iter()
            .map(|changed| (changed.cell, if changed.after.accepts() { '+' } else { '-' }))
            .collect();
        let sign = |cell: &Cell| signs.get(cell).copied().unwrap_or(' ');
        let probes: BTreeSet<Probe> = signs.keys().map(|cell| cell.probe).collect();
        probes.into_iter().try_for_each(|probe| square(f, probe, &self.names, sign))?;
        for changed in &self.changed {
            self.sentence(f, changed)?;
        }
        self.reports.iter().try_for_each(|report| writeln!(f, "not as written: {report}"))
    }
}

impl Difference {
    /// The pod at an address, as `namespace/name`.
    pub fn name(&self, address: NetAddr) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }

    fn sentence(&self, f: &mut fmt::Formatter<'_>, changed: &Changed) -> fmt::Result {
        let Changed { cell, before, after } = changed;
        let name = |end| self.names.get(&end).map_or("?", String::as_str);
        let (from, to) = (name(cell.from), name(cell.to));
        let (before, after) = (before.decision(), after.decision());
        writeln!(f, "{from} > {to} {}: {after} (now {before})", cell.probe)
    }
}

fn square(
    f: &mut fmt::Formatter<'_>,
    probe: Probe,
    names: &BTreeMap<NetAddr, String>,
    sign: impl Fn(&Cell) -> char,
) -> fmt::Result {
    let width = names.values().map(String::len).max().unwrap_or(0);
    writeln!(f, "{probe}")?;
    for (from, name) in names {
        let row: String =
            names.keys().map(|to| sign(&Cell { probe, from: *from, to: *to })).collect();
        writeln!(f, "  {name:width$} {row}")?;
    }
    Ok(())
}
