//! Metrics for Prometheus, and other text pages, over HTTP. The text comes from callbacks.
//!
//! Meant for a private socket or a loopback address: there is neither encryption nor a limit on the number of clients.

use crate::endpoint::{Endpoint, Listener};
use crate::stop::Stop;
use std::time::Duration;
use tiny_http::{Header, Method, Response};
use vellum_base::{Error, Kind, Result};

/// Interval at which the stop token is checked.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A bound metrics server.
pub struct Metrics<F> {
    listener: Listener,
    text: F,
    pages: Vec<Page>,
}

/// A page other than the metrics.
struct Page {
    path: &'static str,
    kind: &'static str,
    text: Box<dyn Fn() -> String + Send + Sync>,
}

const METRICS_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

impl<F: Fn() -> String> Metrics<F> {
    /// Listens at `endpoint`; `text` generates the metrics, in Prometheus' text format 0.0.4, for each request.
    pub fn bind(endpoint: &Endpoint, text: F) -> Result<Metrics<F>> {
        Ok(Metrics { listener: Listener::bind(endpoint)?, text, pages: Vec::new() })
    }

    /// Adds a page: the output of `text` at `path`, with this content type.
    pub fn page(
        mut self,
        path: &'static str,
        kind: &'static str,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Metrics<F> {
        self.pages.push(Page { path, kind, text: Box::new(text) });
        self
    }

    /// Where the server listens.
    pub fn endpoint(&self) -> &Endpoint {
        self.listener.endpoint()
    }

    /// Answers `GET /metrics`, and requests for the other pages, until `stop`.
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
            let (status, kind, body) = self.answer(request.method(), request.url());
            let kind = Header::from_bytes("Content-Type", kind).expect("a constant header is well formed");
            // A client that has disconnected by now does not want the answer.
            let _ = request.respond(Response::from_string(body).with_status_code(status).with_header(kind));
        }
        Ok(())
    }

    fn answer(&self, method: &Method, url: &str) -> (u16, &'static str, String) {
        if !matches!(method, Method::Get | Method::Head) {
            return (405, METRICS_KIND, "only GET works here\n".into());
        }
        match self.pages.iter().find(|page| page.path == url) {
            Some(page) => (200, page.kind, (page.text)()),
            None if matches!(url, "/metrics" | "/") => (200, METRICS_KIND, (self.text)()),
            None => (404, METRICS_KIND, "only /metrics is here\n".into()),
        }
    }
}
