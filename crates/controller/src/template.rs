//! The file with the template for default networks: read at the start and whenever it changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atoll_model::intent::Template;

use crate::reconcile::Desk;

/// How often the file is looked at. It may be a mounted ConfigMap, which is swapped as a whole.
const PACE: Duration = Duration::from_secs(2);

/// Tells the desk about the template, for ever.
pub(crate) async fn follow(file: Option<PathBuf>, desk: Arc<Desk>) {
    let Some(file) = file else {
        desk.hear_template(Template::None);
        return std::future::pending().await;
    };
    loop {
        desk.hear_template(read(&file).await);
        tokio::time::sleep(PACE).await;
    }
}

async fn read(file: &Path) -> Template {
    match tokio::fs::read_to_string(file).await {
        Ok(text) => Template::Text(text),
        Err(error) => Template::Unreadable(format!("{}: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_named() {
        let Template::Unreadable(why) = read(Path::new("/nowhere/template.yaml")).await else {
            panic!("it can be read");
        };
        assert!(why.starts_with("/nowhere/template.yaml: "), "{why}");
    }
}
