//! What the supervisor tells whoever started it, line by line, until the lab is ready or has
//! failed.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// What is said of a supervisor that ended without a last word.
pub(crate) const SILENCE: &str = "the supervisor ended without saying why";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    /// This is done now.
    Step(String),
    /// The lab can be used.
    Ready,
    /// The lab will not come up; a sentence for the user.
    Failed(String),
}

impl Progress {
    /// Tells it on standard output. A starter that is gone does not stop the lab.
    pub(crate) fn tell(&self) {
        let line = serde_json::to_string(self).expect("progress has only plain fields");
        let _gone = writeln!(std::io::stdout(), "{line}");
    }
}

/// Reads until the end is known, showing each step to `show`.
pub(crate) fn follow(lines: impl BufRead, mut show: impl FnMut(&str)) -> Result<(), String> {
    for line in lines.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Progress::Step(text)) => show(&text),
            Ok(Progress::Ready) => return Ok(()),
            Ok(Progress::Failed(why)) => return Err(why),
            Err(_) => {}
        }
    }
    Err(SILENCE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(lines: &[Progress]) -> (Vec<String>, Result<(), String>) {
        let text: Vec<_> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let mut shown = Vec::new();
        let end = follow(text.join("\n").as_bytes(), |step| shown.push(step.to_owned()));
        (shown, end)
    }

    #[test]
    fn steps_are_shown_until_the_lab_is_ready() {
        let (shown, end) = followed(&[Progress::Step("fabric".into()), Progress::Ready]);
        assert_eq!((shown, end), (vec!["fabric".to_owned()], Ok(())));
    }

    #[test]
    fn a_failure_is_passed_on_and_silence_is_one_too() {
        assert_eq!(followed(&[Progress::Failed("no".into())]).1, Err("no".to_owned()));
        let silent = followed(&[Progress::Step("fabric".into())]).1;
        assert_eq!(silent, Err(SILENCE.to_owned()));
    }
}
