//! Serves the embedded API on its own, for trying it with kubectl:
//! `cargo run --example embedded -- FOLDER 127.0.0.1:7443`, then `kubectl --kubeconfig
//! FOLDER/kubeconfig get all -A`. Ends on Ctrl-C; a second run goes on with the same objects.

use atoll_apiserver::{ApiConfig, ApiServer};
use std::net::TcpListener;
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give a folder for the objects")?);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7443".to_owned());
    let server = ApiServer::open(&ApiConfig {
        store: folder.join("store.redb"),
        tls_dir: folder.join("tls"),
        names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
    })?;
    let listener = TcpListener::bind(&address)?;
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(&format!("https://{address}")))?;
    println!("serving on {address}; kubeconfig: {}", kubeconfig.display());
    let shutdown = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    server.serve(vec![listener], shutdown).await?;
    Ok(())
}
