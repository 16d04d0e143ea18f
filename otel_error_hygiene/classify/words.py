"""What a message says where it is anchored: phrases, and statuses and codes in places meant for them."""

from __future__ import annotations

import re
from typing import Final

from . import tables as t
from .tables import Kind

PhraseRow = tuple[Kind, tuple[str, ...]]


def _phrases(kind: Kind, words: str) -> PhraseRow:
    return kind, tuple(words.split("|"))


CONNECTIVITY_PHRASES: Final[tuple[PhraseRow, ...]] = (
    # Texts of the system (strerror, gai_strerror), of OpenSSL and of common transports.
    _phrases(
        t.TLS,
        "[ssl|certificate verify failed|certificate has expired|self signed certificate|ssl handshake"
        "|tls handshake|wrong version number|does not support ssl|hostname mismatch|unknown ca",
    ),
    _phrases(
        t.UNRESOLVED,
        "name or service not known|nodename nor servname|name resolution|getaddrinfo failed"
        "|failed to resolve|could not resolve|could not translate host|name not resolved|no such host"
        "|unable to find the server|dns resolution|dns operation",
    ),
    _phrases(
        t.NOT_SENT,
        "connection refused|econnrefused|actively refused|establish a new connection|connect call failed"
        "|failed to connect|could not connect|cannot connect|can't connect|unable to connect"
        "|connection attempts failed|no route to host|connect timeout"
        # Of a thing that has a name: "unreachable code" is another matter.
        "|is unreachable|are unreachable|was unreachable|unreachable for |host unreachable|server unreachable"
        "|service unreachable|backend unreachable|endpoint unreachable|upstream unreachable"
        "|connection to remote host was lost",
    ),
    _phrases(t.UNRESOLVED, "connection is closed|already closed|not connected"),
    _phrases(
        t.UNANSWERED,
        "connection reset|connection aborted|econnreset|broken pipe|remote end closed|server disconnected"
        "|peer closed|incompleteread|connection broken|closed by the remote|server closed the connection"
        "|lost connection|gone away|read timed out|timeout reading|connection closed|connection was closed"
        "|connection lost|socket hang up|socket error|unexpected eof|eof occurred|error reading ssh",
    ),
)
SPENT_PHRASES: Final[PhraseRow] = _phrases(
    t.SPENT, "insufficient quota|check your plan and billing|billing hard limit|out of credits|credit balance"
)
PHRASES: Final[tuple[PhraseRow, ...]] = (
    *CONNECTIVITY_PHRASES,
    SPENT_PHRASES,
    _phrases(t.UNKNOWN, "index out of range"),  # a fault of code, not a range of the request
    _phrases(
        t.THROTTLED,
        "rate limit|ratelimit|rate exceeded|too many requests|too many connections|too many clients|throttl"
        "|slow down|slowdown|quota exceeded|exceeded your quota|quota has been exceeded|请求过于频繁|请求过多|频率限制"
        "|リクエストが多すぎ|レート制限|너무 많은 요청|zu viele anfragen|trop de requêtes|demasiadas solicitudes"
        "|muitas solicitações|слишком много запросов",
    ),
    _phrases(
        t.DENIED,
        "unauthorized|unauthorised|not authorized|unauthenticated|forbidden|permission denied"
        "|operation not permitted|access denied|access is denied|authentication failed"
        "|authentication required|authentication error|not authenticated|authentication is required"
        "|authentication was required|login required|login incorrect|login failed|invalid auth"
        "|bad credentials|invalid credentials|incorrect credentials|missing credentials|no credentials"
        "|locate credentials|invalid username|invalid password|password is incorrect|invalid api key"
        "|incorrect api key|api key not valid|invalid token|token expired|token has expired|expired token"
        "|token is invalid|token invalid|token revoked|missing scope|insufficient scope"
        "|insufficient permission|insufficient privilege|do not have permission|does not have permission"
        "|no permission|not permitted to|not allowed to access|pg hba|must be owner of|signature has expired"
        "|signature verification failed"
        "|未授权|未经授权|无权|权限不足|没有权限|拒绝访问|认证失败|アクセスが拒否|権限がありません|認証に失敗|권한이"
        "|keine berechtigung|zugriff verweigert|accès refusé|permission refusée|acceso denegado"
        "|permiso denegado|acesso negado|credenciais inválidas|credenciales inválidas|доступ запрещ"
        "|отказано в доступе",
    ),
    _phrases(
        t.TIMEOUT,
        "timed out|timeout|deadline exceeded|time limit exceeded|超时|タイムアウト|시간 초과|zeitüberschreitung"
        "|délai d'attente|tiempo de espera|tempo limite|превышено время",
    ),
    _phrases(
        t.EXHAUSTED,
        "no space left|disk is full|disk quota exceeded|too many open files|cannot allocate memory"
        "|read only file system",
    ),
    _phrases(t.GONE, "no module named|method not found|cannot import name|unable to open database file"),
    _phrases(
        t.MISSING,
        "not found|notfound|no such |does not exist|doesn't exist|do not exist|could not be found"
        "|could not find|cannot find|can't find|unknown tool|unknown table|unknown database"
        "|does not match any|no row was found|no results found"
        "|不存在|找不到|未找到|見つかりません|存在しません|찾을 수 없"
        "|nicht gefunden|existiert nicht|introuvable|n'existe pas|non trouvé|no encontrado|no existe"
        "|não encontrado|não existe|не найден|не существует",
    ),
    _phrases(
        t.UNAVAILABLE,
        "service unavailable|temporarily unavailable|currently unavailable|upstream unavailable"
        "|backend unavailable|server unavailable|service is unavailable|server is unavailable|overloaded|bad gateway"
        "|gateway timeout|is locked|locked by another|held by another worker"
        "|held by another process|held by another transaction"
        "|deadlock|try again later|could not serialize access"
        "|服务不可用|サービスを利用できません",
    ),
    _phrases(t.BROKEN, "internal server error|internal error|internal service error|fatal error|server had an error"),
    _phrases(t.MISNAMED, "unknown column"),
    _phrases(t.CONFLICT, "already exists|conflict|precondition failed|file exists"),
    _phrases(
        t.UNREADABLE,
        "expecting value: line 1 column 1 (char 0)|illegal status line|incorrect header check|non json",
    ),
    _phrases(
        t.MALFORMED,
        "validation error|validation failed|bad request|invalid request|invalid param|invalid argument"
        "|invalid input|invalid value|invalid url|invalid literal|invalid type|invalid format|invalid json"
        "|invalid query|syntax error|parse error|parsing error|unexpected keyword argument"
        "|required positional argument|required keyword only argument|required argument|missing required"
        "|missing argument|mandatory input|mandatory parameter|mandatory argument"
        "|is required|field required|required property|is not json serializable"
        "|larger than max|exceeds the maximum|too large|is too long|must be a |must be an |must be one of"
        "|must be greater|must be less|must be between|must match|must be positive|must be negative"
        "|must be non |must be at least|must be at most|must be in the range|must be unique|must not be |must contain"
        "|must start with|must end with|unknown command|unknown field"
        "|unknown url type|unsupported|out of range|is not an integer|wrong kind of value|wrongtype"
        "|constraint failed|violates|无效|参数错误|構文エラー|不正な|ungültig|invalide|inválido|неверн",
    ),
)
"""Lower case, ``_`` and ``-`` as spaces, URLs and SQL text removed. First match wins."""

ROLE_MISSING: Final = re.compile(r"\b(?:role|user|login|account) ['\"«][^'\"»]{1,80}['\"»] does not exist")
"""PostgreSQL's words for a login that is not there: not a missing thing but a refused caller."""
SOCKET_MISSING: Final = re.compile(r"(?:\.sock\b|unix:).{0,80}no such file|no such file.{0,80}\.sock\b")
"""No file behind a socket's path: a daemon that is down, not a missing file."""

_REASONS: Final = (
    "400 bad request|401 unauthorized|402 payment required|403 forbidden|404 not found|405 method not allowed|"
    "406 not acceptable|407 proxy authentication required|408 request timeout|409 conflict|410 gone|"
    "411 length required|412 precondition failed|413 (?:content|payload|request entity) too large|414 (?:uri|"
    "request-uri) too long|415 unsupported media type|422 unprocessable|423 locked|425 too early|"
    "426 upgrade required|428 precondition required|429 too many requests|431 request header fields too large|"
    "451 unavailable for legal reasons|500 internal server error|501 not implemented|502 bad gateway|"
    "503 service (?:temporarily )?unavailable|504 gateway time-?out|505 http version not supported|"
    "507 insufficient storage"
)
STATUS_IN_TEXT: Final = re.compile(
    # A number counts only where its place says that it is a status: RFC 9112's status line, a reason phrase of RFC 9110
    # after it, the word "status", or the shapes in which client libraries print it.
    r"\bhttp(?:/\d(?:\.\d)?)?(?: (?:error|status|code|response))*[ :=(]{1,3}([1-5]\d\d)\b"
    r"|(?<!exit )\bstatus(?:[ _]?code)?['\"]?(?: ?[:=]| of| is| was|) ?['\"]?([1-5]\d\d)\b(?![.\d])"
    r"|\berror code:? ([45]\d\d)\b(?! ?[.\d])"
    r"|\b([45]\d\d) (?:client|server) error\b"
    r"|\b([45]\d\d) error responses\b"
    r"|\berror occurred \(([45]\d\d)\)"
    r"|^\(?([45]\d\d)\)?(?: (?:get|post|put|patch|delete|head|options) |,? ?message=| ?\{|\s+reason: | ?:)"
    r"|: ([45]\d\d) \{"
    r"|^\w*\(([45]\d\d), "
    r"|(?:->|→|=>) ?([45]\d\d)$"
    rf"|\b(?=({_REASONS}))",
    re.IGNORECASE,
)
GRPC_IN_TEXT: Final = re.compile(r"\bStatusCode\.([A-Z_]{2,40})\b|^[45]\d\d ([A-Z_]{5,40})\b")
ERRNO_IN_TEXT: Final = re.compile(r"\[Errno (\d{1,5})\]")
CODE_IN_TEXT: Final = re.compile(
    # A code or class name in a place that is meant for one: "(psycopg.errors.UndefinedTable) ...",
    # "An error occurred (SlowDown) when ...", "{'error': 'invalid_auth'}", "ErrorCode: BlobNotFound".
    r"^\(([A-Za-z][\w.]{2,80})\)|\berror occurred \(([A-Za-z]\w{2,80})\)"
    r"|['\"]error['\"]: ?['\"]([a-z][a-z_]{2,60})['\"]"
    r"|\bError ?Code: ?([A-Za-z]\w{2,80})|\b(?:Caused by|raised) (\w{3,80})[(>]"
    # A name as Python prints it, at the beginning or after what a wrapper puts before it.
    r"|(?:^|: |\] |\bERROR )([A-Z][A-Za-z]{2,60}(?:Error|Exception))(?:: |$)"
)
CODE_MARKS: Final = ("(", "error", "Error", "Exception", "Caused by", "raised")
"""Texts without any of these hold no code; cheaper than the pattern."""
NOISE: Final = re.compile(
    r"\b[a-z][a-z+.]{1,15}://[^\s'\"]+|\burl: \S+|\[(?:sql|parameters):.*", re.IGNORECASE | re.DOTALL
)
"""Parts of a message that quote the request; they are not evidence."""
NOISE_MARKS: Final = ("://", "url: ", "[SQL: ", "[parameters: ")
"""Texts without any of these hold no noise; cheaper than the pattern."""
CAMEL_IN_TEXT: Final = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")
"""Names in prose (``SignatureDoesNotMatch``), the last resort."""
