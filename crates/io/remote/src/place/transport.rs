//! Requests to servers that may be slow, broken or hostile.
//!
//! `Transport` is located between the store's library and the HTTP client. It bounds answers of unknown size, and
//! requires progress instead of limiting the total time. It adds the query of an address, which may be a secret and is
//! stored nowhere else. Error answers are reduced to the name of the error.

mod body;
mod client;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, RANGE};
use http::{Method, Uri};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use parking_lot::Mutex;

use self::body::{Limited, collect};

/// Limits for the answers of a server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Timeout between the request and the start of the answer.
    pub silence: Duration,
    /// Length of a time window.
    pub window: Duration,
    /// Minimum number of bytes per window, in either direction.
    pub window_bytes: u64,
    /// Maximum number of bytes of an error answer that are read.
    pub error_bytes: u64,
    /// Maximum size of one page of a listing, and of every other answer of unknown size.
    pub page_bytes: u64,
    /// Maximum number of pages of one listing.
    pub pages: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            window: Duration::from_secs(30),
            window_bytes: 16 << 10,
            error_bytes: 64 << 10,
            page_bytes: 64 << 20,
            pages: 100_000,
        }
    }
}

/// The reason why a request was cancelled.
#[derive(Debug, thiserror::Error)]
enum CancelReason {
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
    #[error("the server sent {bytes} bytes in {window:?}, fewer than the minimum of {least}")]
    Slow { bytes: u64, window: Duration, least: u64 },
    #[error("the response is larger than the limit of {0} bytes")]
    Long(u64),
    #[error("the listing has more than {0} pages; use a longer prefix")]
    Pages(u64),
    #[error("the server repeats a page of the listing endlessly")]
    Repeated,
    #[error(
        "the server sends the object with an unrequested compression ({0}); turn it off, or copy \
         the image to a local file"
    )]
    Encoded(String),
}

impl From<CancelReason> for HttpError {
    fn from(fault: CancelReason) -> Self {
        let kind = match fault {
            CancelReason::Silent(_) | CancelReason::Slow { .. } => HttpErrorKind::Timeout,
            _ => HttpErrorKind::Decode,
        };
        Self::new(kind, fault)
    }
}

/// Creates HTTP clients that enforce [`Limits`].
pub(crate) struct Connector {
    pub(crate) limits: Limits,
    /// Query to add to each request.
    pub(crate) query: Option<String>,
}

/// Returns a connector that enforces these limits for other stores.
#[must_use]
pub fn connector(limits: Limits) -> impl HttpConnector {
    Connector { limits, query: None }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = HttpClient::new(client::build(options)?);
        let (limits, query) = (self.limits, self.query.clone());
        Ok(HttpClient::new(Transport { client, limits, query, listings: Mutex::default() }))
    }
}

struct Transport {
    client: HttpClient,
    limits: Limits,
    query: Option<String>,
    /// Listings in progress, by address without the page parameter.
    listings: Mutex<HashMap<String, Pages>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The progress of one listing.
#[derive(Default)]
struct Pages {
    count: u64,
    last: String,
}

/// Query parameters that select a page of a listing.
const PAGES: [&str; 3] = ["continuation-token", "pageToken", "marker"];
/// Query parameters that occur only in listings.
const LISTINGS: [&str; 5] = ["list-type", "comp", "prefix", "delimiter", "maxResults"];
/// Maximum number of tracked listings. When there are more, all are forgotten.
const LISTINGS_MAX: usize = 4096;

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(request.uri());
        if is_listing {
            self.count_page(request.uri())?;
        }
        if let Some(query) = &self.query {
            *request.uri_mut() = with_query(request.uri(), query)?;
        }
        let knows_size = *request.method() == Method::GET && !is_listing;
        let is_object = knows_size || request.headers().contains_key(RANGE);
        let sending = request.body().content_length() as u64 / self.limits.window_bytes.max(1);
        let patience = self.limits.silence
            + self.limits.window.saturating_mul(sending.try_into().unwrap_or(u32::MAX));
        let answered = tokio::time::timeout(patience, self.client.execute(request)).await;
        let answer = answered.map_err(|_| CancelReason::Silent(patience))??;
        if !answer.status().is_success() {
            return self.refusal(answer).await;
        }
        if is_object && let Some(encoding) = encoding_not_wanted(answer.headers()) {
            return Err(CancelReason::Encoded(encoding).into());
        }
        let len = if is_object { len_said(answer.headers()) } else { None };
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, self.limits, len.unwrap_or(self.limits.page_bytes));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

impl Transport {
    /// Reduces an error answer to the name of the error. Its body may repeat the request with its credentials.
    async fn refusal(&self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = answer.into_parts();
        let body = Limited::new(body, self.limits, self.limits.error_bytes);
        // If the body breaks off, the status is enough.
        let said = error_name(&collect(body).await);
        parts.headers.remove(CONTENT_LENGTH);
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(said.into_bytes())))
    }

    fn count_page(&self, uri: &Uri) -> Result<(), CancelReason> {
        let (mut listing, mut page) = (uri.path().to_owned(), String::new());
        for pair in uri.query().unwrap_or_default().split('&') {
            let is_page = PAGES.contains(&pair.split('=').next().unwrap_or_default());
            let text = if is_page { &mut page } else { &mut listing };
            text.push('&');
            text.push_str(pair);
        }
        let mut listings = self.listings.lock();
        if page.is_empty() {
            if listings.len() >= LISTINGS_MAX {
                listings.clear();
            }
            listings.remove(&listing);
            return Ok(());
        }
        let pages = listings.entry(listing).or_default();
        // A retried request asks for the same page again, which is allowed a few times.
        let is_repeated = pages.last == page;
        pages.count += if is_repeated { (self.limits.pages / 16).max(1) } else { 1 };
        pages.last = page;
        match pages.count > self.limits.pages {
            true if is_repeated => Err(CancelReason::Repeated),
            true => Err(CancelReason::Pages(self.limits.pages)),
            false => Ok(()),
        }
    }
}

fn is_listing(uri: &Uri) -> bool {
    let names = uri.query().unwrap_or_default().split('&');
    names.into_iter().any(|pair| LISTINGS.contains(&pair.split('=').next().unwrap_or_default()))
}

/// Returns the address with a query added.
fn with_query(uri: &Uri, query: &str) -> Result<Uri, HttpError> {
    let joined = match uri.query() {
        Some(before) => format!("{}?{before}&{query}", uri.path()),
        None => format!("{}?{query}", uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    let wrong = |error| HttpError::new_boxed(HttpErrorKind::Request, error);
    parts.path_and_query = Some(
        joined.parse().map_err(|_| wrong("the query string of the address is invalid".into()))?,
    );
    Uri::from_parts(parts).map_err(|error| wrong(error.into()))
}

/// Returns the content encoding if the server compressed the object, so that the bytes are not those of the image.
fn encoding_not_wanted(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    let is_changed = ["gzip", "x-gzip", "deflate", "br", "compress"].contains(&&*encoding);
    is_changed.then_some(encoding)
}

/// Returns the body length according to the headers.
fn len_said(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(range) = text(CONTENT_RANGE) {
        let (first, last) = range.strip_prefix("bytes ")?.split_once('/')?.0.split_once('-')?;
        return last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1);
    }
    text(CONTENT_LENGTH)?.parse().ok()
}

/// Maximum length of an error's name.
const ERROR_NAME_BYTES_MAX: usize = 64;

/// Returns the name of an error in an answer: `<Code>NAME</Code>` of object stores, or `"error": "NAME"` of token
/// servers.
fn error_name(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest);
    let rest = after("<Code>")
        .or_else(|| after("\"error\"").map(|rest| rest.trim_start_matches([':', ' ', '"'])));
    let rest = rest.unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &rest[..rest.find(|c| !is_plain(c)).unwrap_or(rest.len())];
    if name.len() <= ERROR_NAME_BYTES_MAX { name.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_an_error_is_kept() {
        let name = |body: &str| error_name(body.as_bytes());
        assert_eq!(name("<?xml?><Error><Code>SlowDown</Code><Message>x"), "SlowDown");
        assert_eq!(name("{\"error\": \"invalid_grant\", \"x\": 1}"), "invalid_grant");
        assert_eq!(name("GET /?X-Amz-Signature=secret"), "");
        assert_eq!(name(&format!("<Code>{}</Code>", "x".repeat(65))), "");
    }

    #[test]
    fn a_query_is_added_to_requests() {
        let with = |uri: &str| with_query(&uri.parse().unwrap(), "s=1").unwrap().to_string();
        assert_eq!(with("http://h/a"), "http://h/a?s=1");
        assert_eq!(with("http://h/a?b=c"), "http://h/a?b=c&s=1");
    }
}
