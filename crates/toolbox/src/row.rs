//! Rows of a truth table: one client asks many servers at once, and says which did not answer that
//! should, and which did that should not.
//!
//! The rule: whoever should answer is waited for with patience, and only once they all have is the
//! time of the others over. So a busy machine makes a row slow, and not wrong.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::answer::{Outcome, Report};
use crate::connect::attempt;
use crate::target::Target;

/// How long the others have once those have answered that should.
const GRACE: Duration = Duration::from_millis(150);

/// What to try, and what must come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Who must answer.
    pub open: Vec<Target>,
    /// Who must not.
    pub closed: Vec<Target>,
    /// What the names of all that answer begin with; an answer of anybody else is a leak.
    #[serde(default)]
    pub own: String,
    /// How long whoever must answer may take, in milliseconds.
    pub patience: u64,
}

/// What was not as it must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// Who did not answer.
    pub silent: Vec<Target>,
    /// Who did although it must not.
    pub leaked: Vec<Target>,
}

/// `rows`: for each line of input, a [`Row`], one line of output, what is wrong with it.
pub(crate) async fn run() -> anyhow::Result<ExitCode> {
    for line in std::io::stdin().lock().lines() {
        let row: Row = serde_json::from_str(&line?)?;
        println!("{}", serde_json::to_string(&try_row(&row).await)?);
    }
    Ok(ExitCode::SUCCESS)
}

async fn try_row(row: &Row) -> Wrong {
    let patience = Duration::from_millis(row.patience);
    let all = |targets: &[Target]| -> JoinSet<Report> {
        targets.iter().map(|target| attempt(*target, None, patience + GRACE)).collect()
    };
    let (mut open, mut closed) = (all(&row.open), all(&row.closed));
    let mut wrong = Wrong::default();
    while let Some(Ok(report)) = open.join_next().await {
        match answer(&report, &row.own) {
            Heard::Own => {}
            Heard::Nobody => wrong.silent.push(report.target),
            Heard::Stranger => wrong.leaked.push(report.target),
        }
    }
    let over = tokio::time::sleep(if row.closed.is_empty() { Duration::ZERO } else { GRACE });
    tokio::pin!(over);
    loop {
        tokio::select! {
            Some(Ok(report)) = closed.join_next() => {
                if answer(&report, &row.own) != Heard::Nobody {
                    wrong.leaked.push(report.target);
                }
            }
            () = &mut over => return wrong,
        }
    }
}

/// Who answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Own,
    Stranger,
    Nobody,
}

fn answer(report: &Report, own: &str) -> Heard {
    match &report.outcome {
        Outcome::Answered(answer) if !answer.pod.starts_with(own) => Heard::Stranger,
        Outcome::Answered(_) | Outcome::Replied(_) => Heard::Own,
        Outcome::Failed(_) => Heard::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::serve_for_test;

    #[tokio::test]
    async fn a_row_names_who_is_silent_and_who_answers_against_the_rules() {
        let port = serve_for_test().await;
        let there: Target = format!("tcp/127.0.0.1:{port}").parse().unwrap();
        let nowhere: Target = "tcp/127.0.0.1:1".parse().unwrap();
        let row = |open, closed, own: &str| Row {
            open: vec![open],
            closed: vec![closed],
            own: own.into(),
            patience: 5000,
        };
        assert_eq!(try_row(&row(there, nowhere, "acme/")).await, Wrong::default());
        let wrong = Wrong { silent: vec![nowhere], leaked: vec![there] };
        assert_eq!(try_row(&row(nowhere, there, "acme/")).await, wrong);
        let foreign = Wrong { silent: vec![], leaked: vec![there] };
        assert_eq!(try_row(&row(there, nowhere, "globex/")).await, foreign);
    }
}
