//! Answers to requests: access, limits, the page, and the work of `dav-server`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dav_server::davpath::DavPath;
use dav_server::fs::FsError;
use dav_server::{DavConfig, DavHandler};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use vfs::path::LastLink;
use xmltree::{Element, XMLNode};

use crate::access::{self, Refusal};
use crate::body::{self, AnyBody, TimedBody};
use crate::context::RequestContext;
use crate::dav::{Context, DavVolume};
use crate::locks::LockTable;
use crate::missing::NamedProperties;
use crate::options::{WebdavAccess, WebdavOptions};
use crate::pool::JobPool;
use crate::properties::{self, DAV, DAV_TIMES, MICROSOFT, MICROSOFT_TIMES};
use crate::{archive_pieces, names, page, xml_guard};

/// Maximum size of a body of XML, in bytes, and that of the response to PROPPATCH.
const XML_BYTES_MAX: usize = 64 << 10;
const PROPPATCH_BYTES_MAX: usize = 1 << 20;
/// Size of a read, in bytes.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of ranges in a request.
const RANGES_MAX: usize = 16;
/// Time until a wrong password is answered.
const WRONG_PASSWORD_DELAY: Duration = Duration::from_secs(1);

/// Policy of files that browsers may show as documents: no scripts, no forms, no access to the other files.
const FILE_POLICY: &str = "sandbox; frame-ancestors 'none'";

/// Methods that change something. COPY, MOVE and others of `dav-server` are extensions of HTTP.
const CHANGING: [&str; 7] = ["PUT", "PATCH", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH"];

/// Answers the requests of all connections.
pub(crate) struct Answerer {
    options: WebdavOptions,
    /// Path of the secret, or nothing.
    prefix: String,
    pool: JobPool,
    handler: DavHandler<Context>,
}

impl Answerer {
    pub(crate) fn new(options: WebdavOptions, pool: JobPool) -> Self {
        let prefix = match &options.access {
            WebdavAccess::Secret(secret) => format!("/{}", secret.as_str()),
            WebdavAccess::Password(_) => String::new(),
        };
        let handler = DavConfig::<Context>::new()
            .filesystem(Box::new(DavVolume { pool: pool.clone() }))
            .locksystem(Box::new(LockTable::default()))
            .strip_prefix(prefix.clone())
            .hide_symlinks(false)
            .autoindex(false)
            .read_buf_size(READ_BYTES)
            .build_handler();
        Self { options, prefix, pool, handler }
    }

    /// Answers a request. Errors are responses, too.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<AnyBody>, Infallible> {
        let is_head = request.method() == Method::HEAD;
        let mut response = match self.try_answer(request).await {
            Ok(response) => response,
            Err(refused) => refused,
        };
        if is_head {
            *response.body_mut() = body::empty();
        }
        let headers = response.headers_mut();
        let is_pdf =
            headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/pdf");
        let mut set = |name: HeaderName, value| {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        };
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::REFERRER_POLICY, "no-referrer");
        // Browsers do not show PDF files in a sandbox, and these have no access to other files anyway.
        if !is_pdf {
            set(header::CONTENT_SECURITY_POLICY, FILE_POLICY);
        }
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        Ok(response)
    }

    async fn try_answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<AnyBody>, Response<AnyBody>> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::OPTIONS && parts.uri.path() == "*" {
            access::check_site(&self.options, &parts.headers).map_err(refused)?;
            return Ok(capabilities());
        }
        self.check(&parts.uri, &parts.headers, &parts.method).await?;
        let method = parts.method.as_str();
        let changes = CHANGING.contains(&method);
        if self.options.read_only && changes {
            return Err(refusal(StatusCode::FORBIDDEN, "the image is served read-only"));
        }
        let removes = matches!(method, "DELETE" | "MOVE");
        if removes && self.names(&parts.uri).is_some_and(|names| names.is_empty()) {
            return Err(refusal(StatusCode::FORBIDDEN, "the root cannot be removed"));
        }
        self.check_destination(&parts).map_err(|(status, reason)| refusal(status, reason))?;
        limit_ranges(&mut parts.headers);
        // These change how `dav-server` works: unlimited depth, and a size that may differ from the body's.
        parts.headers.remove("x-litmus");
        parts.headers.remove("x-expected-entity-length");
        if matches!(parts.method, Method::GET | Method::HEAD)
            && let Some(page) = self.page(&parts.uri).await?
        {
            return Ok(page);
        }
        let PreparedBody { body, wants_all, named } = prepared(&parts.method, body).await?;
        let context = Arc::new(RequestContext::new(&parts.method, wants_all));
        // LOCK creates missing files.
        let may_change = changes || method == "LOCK";
        let is_proppatch = method == "PROPPATCH";
        let is_propfind = method == "PROPFIND";
        let request = Request::from_parts(parts, body);
        let response = self.handler.handle_guarded(request, String::new(), context).await;
        let mut response = response.map(BodyExt::boxed_unsync);
        if is_propfind && response.status() == StatusCode::NOT_IMPLEMENTED {
            // Unlimited depth (RFC 4918, section 9.1).
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
        if !named.is_empty() && response.status() == StatusCode::MULTI_STATUS {
            response = with_missing(response, named);
        }
        let response = if is_proppatch { with_own_namespaces(response).await? } else { response };
        if may_change { self.durable(response).await } else { Ok(response) }
    }

    async fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        method: &Method,
    ) -> Result<(), Response<AnyBody>> {
        match access::check(&self.options, uri, headers) {
            Ok(()) => Ok(()),
            // Clients of Windows ask for the capabilities of the root first.
            Err(Refusal::NotFound) if method == Method::OPTIONS => Err(capabilities()),
            Err(Refusal::Unauthorized) => {
                if headers.contains_key(header::AUTHORIZATION) {
                    tokio::time::sleep(WRONG_PASSWORD_DELAY).await;
                }
                Err(refused(Refusal::Unauthorized))
            }
            Err(refusal) => Err(refused(refusal)),
        }
    }

    /// Checks the destination of COPY or MOVE: it is on this server, and its removal does not remove the source. A
    /// directory is not moved below itself, for which its destination would be removed first.
    fn check_destination(&self, request: &Parts) -> Result<(), (StatusCode, &'static str)> {
        let Some(destination) = request.headers.get("destination") else { return Ok(()) };
        let parsed = destination.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        let Some(uri) = parsed else {
            return Err((StatusCode::BAD_REQUEST, "the destination is no address"));
        };
        let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let is_here = |authority: &Authority| {
            host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_str()))
        };
        if !uri.authority().is_none_or(is_here) {
            return Err((StatusCode::BAD_GATEWAY, "the destination is on another server"));
        }
        let (Some(from), Some(to)) = (self.names(&request.uri), self.names(&uri)) else {
            // `dav-server` refuses the path.
            return Ok(());
        };
        let is_inside = from.len() != to.len()
            && (from.starts_with(&to)
                || request.method.as_str() == "MOVE" && to.starts_with(&from));
        if is_inside {
            return Err((StatusCode::FORBIDDEN, "source and destination contain each other"));
        }
        Ok(())
    }

    /// Returns the names on the path of an address of this server.
    fn names(&self, uri: &Uri) -> Option<Vec<Vec<u8>>> {
        let path = DavPath::new(uri.path().strip_prefix(self.prefix.as_str())?).ok()?;
        names::of_path(path.as_bytes()).ok()
    }

    /// Returns the page or the archive of a directory, or `None` if the request is for something else.
    async fn page(&self, uri: &Uri) -> Result<Option<Response<AnyBody>>, Response<AnyBody>> {
        let Some(path) = uri.path().strip_prefix(self.prefix.as_str()) else { return Ok(None) };
        if path.is_empty() {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::FOUND;
            set(&mut response, header::LOCATION, &format!("{}/", self.prefix));
            return Ok(Some(response));
        }
        let Some(path) = DavPath::new(path).ok().filter(|path| path.is_collection()) else {
            return Ok(None);
        };
        let path = path.as_bytes().to_vec();
        let wanted = path.clone();
        let find = self.pool.run(move |volume| volume.metadata(&wanted, LastLink::Follow));
        let found = find.await.map_err(failed)?;
        if !found.file_type.is_dir() {
            return Ok(None);
        }
        let has_archive = self.options.archives.is_some();
        let mut response = if has_archive && uri.query() == Some("tar") {
            let disposition = page::archive_disposition(&path);
            let pieces = archive_pieces::pieces(self.pool.clone(), path).await.map_err(failed)?;
            let mut response = Response::new(body::streamed(pieces));
            set(&mut response, header::CONTENT_TYPE, "application/x-tar");
            set(&mut response, header::CONTENT_DISPOSITION, &disposition);
            response
        } else {
            let pieces = page::pieces(self.pool.clone(), (found.ino, path), has_archive);
            let mut response = Response::new(body::streamed(pieces));
            set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
            set(&mut response, header::CONTENT_SECURITY_POLICY, page::PAGE_POLICY);
            response
        };
        set(&mut response, header::CACHE_CONTROL, "no-store");
        Ok(Some(response))
    }

    /// Makes the changes of a request durable before its answer. A body that is longer than one piece reports partial
    /// failures while `dav-server` goes on; its end waits for durability.
    async fn durable(
        &self,
        response: Response<AnyBody>,
    ) -> Result<Response<AnyBody>, Response<AnyBody>> {
        if !response.status().is_success() {
            return Ok(response);
        }
        if response.body().is_end_stream() || response.status() != StatusCode::MULTI_STATUS {
            self.pool.run(|volume| volume.make_durable()).await.map_err(failed)?;
            return Ok(response);
        }
        let pool = self.pool.clone();
        let end = futures_util::stream::once(async move {
            let stored = pool.run(|volume| volume.make_durable()).await;
            stored.map(|()| Bytes::new()).map_err(std::io::Error::other)
        });
        Ok(response.map(|body| {
            use futures_util::StreamExt;
            body::streamed(body.into_data_stream().chain(end))
        }))
    }
}

/// Body of a request for `dav-server`.
struct PreparedBody {
    body: AnyBody,
    /// PROPFIND asks for all properties.
    wants_all: bool,
    /// Properties that PROPFIND names.
    named: NamedProperties,
}

impl PreparedBody {
    fn new(body: AnyBody) -> Self {
        Self { body, wants_all: false, named: NamedProperties::default() }
    }
}

async fn prepared(method: &Method, body: Incoming) -> Result<PreparedBody, Response<AnyBody>> {
    let body = TimedBody::new(body);
    if !matches!(method.as_str(), "PROPFIND" | "PROPPATCH" | "LOCK") {
        return Ok(PreparedBody::new(body.boxed_unsync()));
    }
    let collected = Limited::new(body, XML_BYTES_MAX).collect().await;
    let too_large =
        |_| refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or incomplete");
    let data = collected.map_err(too_large)?.to_bytes();
    if data.is_empty() {
        let wants_all = method.as_str() == "PROPFIND";
        return Ok(PreparedBody { wants_all, ..PreparedBody::new(body::empty()) });
    }
    let bad = || refusal(StatusCode::BAD_REQUEST, "the body is no XML that this server accepts");
    xml_guard::check(&data).map_err(|_| bad())?;
    match method.as_str() {
        "PROPPATCH" => {
            let changed = with_renamed_times(&data).ok_or_else(bad)?;
            Ok(PreparedBody::new(body::full(changed)))
        }
        "PROPFIND" => {
            let root = Element::parse(&data[..]).map_err(|_| bad())?;
            let has = |name: &str| root.get_child(name).is_some();
            let wants_all = has("allprop") || has("propname");
            let named = NamedProperties::of(&root);
            Ok(PreparedBody { body: body::full(data), wants_all, named })
        }
        _ => Ok(PreparedBody::new(body::full(data))),
    }
}

/// Moves times of PROPPATCH into namespaces that `dav-server` leaves to the file system.
fn with_renamed_times(data: &[u8]) -> Option<Vec<u8>> {
    let mut root = Element::parse(data).ok()?;
    let mut has_times = false;
    let sets = root.children.iter_mut().filter_map(XMLNode::as_mut_element);
    let sets = sets.filter(|action| action.name == "set");
    let props = sets.flat_map(|set| set.children.iter_mut().filter_map(XMLNode::as_mut_element));
    let props = props.filter(|props| props.name == "prop");
    for prop in
        props.flat_map(|props| props.children.iter_mut().filter_map(XMLNode::as_mut_element))
    {
        let namespace = properties::namespace_of_time(prop.namespace.as_deref(), &prop.name);
        if let Some(namespace) = namespace {
            let mut namespaces = prop.namespaces.take().unwrap_or_else(xmltree::Namespace::empty);
            namespaces.force_put("times", namespace);
            prop.namespaces = Some(namespaces);
            prop.prefix = Some("times".into());
            prop.namespace = Some(namespace.into());
            has_times = true;
        }
    }
    if !has_times {
        return Some(data.to_vec());
    }
    let mut changed = Vec::new();
    root.write(&mut changed).ok()?;
    Some(changed)
}

/// Gives times in the response of PROPPATCH their own namespaces again.
async fn with_own_namespaces(
    response: Response<AnyBody>,
) -> Result<Response<AnyBody>, Response<AnyBody>> {
    let (parts, body) = response.into_parts();
    let collected = Limited::new(body, PROPPATCH_BYTES_MAX).collect().await;
    let data = collected.map_err(|_| failed(FsError::GeneralFailure))?.to_bytes();
    let text = String::from_utf8_lossy(&data);
    let text = text.replace(DAV_TIMES, DAV).replace(MICROSOFT_TIMES, MICROSOFT);
    Ok(Response::from_parts(parts, body::full(text)))
}

/// Adds the named properties that files lack.
fn with_missing(response: Response<AnyBody>, named: NamedProperties) -> Response<AnyBody> {
    use futures_util::TryStreamExt;
    response.map(|body| {
        body::streamed(body.into_data_stream().map_ok(move |piece| named.complete(piece)))
    })
}

/// Removes a list of ranges that is too long. The answer is the whole file then, as the standard permits.
fn limit_ranges(headers: &mut HeaderMap) {
    let count = |value: &HeaderValue| value.as_bytes().iter().filter(|&&byte| byte == b',').count();
    if headers.get(header::RANGE).is_some_and(|value| count(value) >= RANGES_MAX) {
        headers.remove(header::RANGE);
    }
}

/// Returns the answer to OPTIONS outside of the image.
fn capabilities() -> Response<AnyBody> {
    let mut response = Response::new(body::empty());
    set(&mut response, HeaderName::from_static("dav"), "1,2");
    set(&mut response, HeaderName::from_static("ms-author-via"), "DAV");
    set(&mut response, header::ALLOW, "OPTIONS");
    response
}

fn refused(reason: Refusal) -> Response<AnyBody> {
    match reason {
        Refusal::NoHost => refusal(StatusCode::BAD_REQUEST, "the header Host is missing"),
        Refusal::ForeignSite => refusal(
            StatusCode::FORBIDDEN,
            "this host name or origin is not permitted; use the IP address, or the option --host-name",
        ),
        Refusal::NotFound => refusal(StatusCode::NOT_FOUND, "not found"),
        Refusal::Unauthorized => {
            let mut response =
                refusal(StatusCode::UNAUTHORIZED, "the password is missing or wrong");
            let realm = "Basic realm=\"diskwright\", charset=\"UTF-8\"";
            set(&mut response, header::WWW_AUTHENTICATE, realm);
            response
        }
    }
}

/// Returns a response with a reason as text.
fn refusal(status: StatusCode, reason: &str) -> Response<AnyBody> {
    let mut response = Response::new(body::full(format!("{reason}\n")));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

fn failed(error: FsError) -> Response<AnyBody> {
    let (status, reason) = match error {
        FsError::NotFound => (StatusCode::NOT_FOUND, "not found"),
        FsError::Forbidden => (StatusCode::FORBIDDEN, "not permitted"),
        FsError::PathTooLong => (StatusCode::URI_TOO_LONG, "a name is too long"),
        FsError::LoopDetected => (StatusCode::LOOP_DETECTED, "symbolic links form a loop"),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the image cannot be read or written; see the server's log",
        ),
    };
    refusal(status, reason)
}

fn set(response: &mut Response<AnyBody>, name: HeaderName, value: &str) {
    // The values contain no control characters.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
