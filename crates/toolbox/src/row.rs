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

/// How long a server that should answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the others have once those have answered that should.
const GRACE: Duration = Duration::from_millis(150);

/// What to try, and what must come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Who must answer.
    pub open: Vec<Target>,
    /// Who must not.
    pub closed: Vec<Target>,
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
    let mut open: JoinSet<Report> =
        row.open.iter().map(|target| attempt(*target, None, PATIENCE)).collect();
    let mut closed: JoinSet<Report> =
        row.closed.iter().map(|target| attempt(*target, None, 10 * GRACE)).collect();
    let mut wrong = Wrong::default();
    while let Some(Ok(report)) = open.join_next().await {
        if !has_answered(&report) {
            wrong.silent.push(report.target);
        }
    }
    let over = tokio::time::sleep(if row.closed.is_empty() { Duration::ZERO } else { GRACE });
    tokio::pin!(over);
    loop {
        tokio::select! {
            Some(Ok(report)) = closed.join_next() => {
                if has_answered(&report) {
                    wrong.leaked.push(report.target);
                }
            }
            () = &mut over => return wrong,
        }
    }
}

fn has_answered(report: &Report) -> bool {
    !matches!(report.outcome, Outcome::Failed(_))
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
        let right = Row { open: vec![there], closed: vec![nowhere] };
        assert_eq!(try_row(&right).await, Wrong::default());
        let turned = Row { open: vec![nowhere], closed: vec![there] };
        let wrong = Wrong { silent: vec![nowhere], leaked: vec![there] };
        assert_eq!(try_row(&turned).await, wrong);
    }
}
