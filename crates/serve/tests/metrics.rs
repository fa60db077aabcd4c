//! Figures over HTTP.

use crate::rig::start;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vellum_serve::metrics::Metrics;
use vellum_serve::{Endpoint, Stop};

fn ask(mut stream: impl Read + Write, line: &str) -> String {
    write!(stream, "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn figures_are_fresh_and_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("metrics");
    for endpoint in [Endpoint::Unix(socket.clone()), Endpoint::Tcp("127.0.0.1:0".parse().unwrap())] {
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let text = move || format!("vellum_asked_total {}\n", count.fetch_add(1, SeqCst) + 1);
        let metrics =
            Arc::new(
                Metrics::bind(&endpoint, text).unwrap().page("/more", "application/json", || "{}".into()),
            );
        let place = metrics.endpoint().clone();
        let stop = Stop::new().unwrap();
        let told = stop.clone();
        let thread = start(move || metrics.run(&told));
        let get = |line: &str| match &place {
            Endpoint::Unix(path) => ask(UnixStream::connect(path).unwrap(), line),
            Endpoint::Tcp(addr) => ask(TcpStream::connect(addr).unwrap(), line),
        };
        let first = get("GET /metrics");
        assert!(first.starts_with("HTTP/1.1 200") && first.contains("version=0.0.4"), "{first}");
        assert!(first.ends_with("vellum_asked_total 1\n"), "{first}");
        assert!(get("GET /metrics").ends_with("vellum_asked_total 2\n"));
        let more = get("GET /more");
        assert!(more.contains("application/json") && more.ends_with("\r\n\r\n{}"), "{more}");
        assert!(get("GET /other").starts_with("HTTP/1.1 404"));
        assert!(get("POST /metrics").starts_with("HTTP/1.1 405"));
        stop.stop();
        thread.join().unwrap().unwrap();
    }
    assert!(!socket.exists());
}
