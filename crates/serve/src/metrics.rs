//! Figures for Prometheus: text over HTTP, from whoever can write it.
//!
//! Meant for a private socket or a loopback address: there is neither encryption nor a limit on clients.

use crate::endpoint::{Endpoint, Listener};
use crate::stop::Stop;
use std::time::Duration;
use tiny_http::{Header, Method, Response};
use vellum_base::{Error, Kind, Result};

/// How soon a stop is seen.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A bound metrics server.
pub struct Metrics<F> {
    listener: Listener,
    text: F,
}

impl<F: Fn() -> String> Metrics<F> {
    /// Listens at `endpoint`; `text` writes the page, in Prometheus' text format 0.0.4, each time it is asked for.
    pub fn bind(endpoint: &Endpoint, text: F) -> Result<Metrics<F>> {
        Ok(Metrics { listener: Listener::bind(endpoint)?, text })
    }

    /// Where it can be asked.
    pub fn endpoint(&self) -> &Endpoint {
        self.listener.endpoint()
    }

    /// Answers `GET /metrics` until `stop`.
    pub fn run(&self, stop: &Stop) -> Result<()> {
        let shared = self.listener.share().map_err(|e| Error::io("share the metrics socket", e))?;
        let server = tiny_http::Server::from_listener(shared, None)
            .map_err(|e| Error::new(Kind::Io, format!("serve metrics: {e}")))?;
        while !stop.is_stopped() {
            let request = match server.recv_timeout(STOP_CHECK) {
                Ok(Some(request)) => request,
                Ok(None) => continue,
                Err(e) => return Err(Error::io("take a request for metrics", e)),
            };
            let (status, body) = match (request.method(), request.url()) {
                (Method::Get | Method::Head, "/metrics" | "/") => (200, (self.text)()),
                (Method::Get | Method::Head, _) => (404, "only /metrics is here\n".into()),
                _ => (405, "only GET works here\n".into()),
            };
            let kind = Header::from_bytes("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                .expect("a constant header is well formed");
            // A client that has gone by now does not want the answer.
            let _ = request.respond(Response::from_string(body).with_status_code(status).with_header(kind));
        }
        Ok(())
    }
}
