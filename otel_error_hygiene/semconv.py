"""Every attribute key and value that the package reads or writes, spelled once, with its source.

The GenAI keys live in the development part of the OpenTelemetry semantic conventions, whose Python
constants move between releases; so they are spelled here and not imported.
"""

from __future__ import annotations

from typing import Final

# --- OpenTelemetry semantic conventions: GenAI (docs/gen-ai/gen-ai-spans.md) -------------------
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_TOOL_STATUS: Final = "gen_ai.tool.status"
GEN_AI_TASK_STATUS: Final = "gen_ai.task.status"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_TOOL_MESSAGE: Final = "gen_ai.tool.message"
"""Event of a tool's span (Strands); its ``content`` holds the arguments."""
EXECUTE_TOOL: Final = "execute_tool"
TOOL_ARGUMENTS: Final = "tool_arguments"
TOOL_RESPONSE: Final = "tool_response"
"""These two: Pydantic AI before it followed the conventions."""

# --- MCP (docs/gen-ai/mcp.md) ------------------------------------------------------------------
MCP_METHOD_NAME: Final = "mcp.method.name"
MCP_TOOLS_CALL: Final = "tools/call"
MCP_TOOL_ERROR: Final = "tool_error"

# --- OpenInference (spec/semantic_conventions.md) ----------------------------------------------
OPENINFERENCE_SPAN_KIND: Final = "openinference.span.kind"
TOOL_NAME: Final = "tool.name"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
SESSION_ID: Final = "session.id"
TOOL_ID: Final = "tool.id"
TOOL_CALL_ID: Final = "tool_call.id"
TOOL_DESCRIPTION: Final = "tool.description"
AGENT_NAME: Final = "agent.name"
GRAPH_NODE_NAME: Final = "graph.node.name"
GRAPH_NODE_ID: Final = "graph.node.id"

# --- OpenLLMetry (opentelemetry-semantic-conventions-ai) ---------------------------------------
TRACELOOP_SPAN_KIND: Final = "traceloop.span.kind"
TRACELOOP_ENTITY_NAME: Final = "traceloop.entity.name"
TRACELOOP_ENTITY_INPUT: Final = "traceloop.entity.input"
TRACELOOP_ENTITY_OUTPUT: Final = "traceloop.entity.output"
TRACELOOP_PROPERTIES: Final = "traceloop.association.properties."
"""Prefix; the name of a property follows."""
LLM_REQUEST_TYPE: Final = "llm.request.type"

# --- Langfuse (its SDK's _client/attributes.py) --------------------------------------------------
LANGFUSE_TYPE: Final = "langfuse.observation.type"
LANGFUSE_INPUT: Final = "langfuse.observation.input"
LANGFUSE_OUTPUT: Final = "langfuse.observation.output"
LANGFUSE_LEVEL: Final = "langfuse.observation.level"
LANGFUSE_STATUS_MESSAGE: Final = "langfuse.observation.status_message"
LANGFUSE_SESSION_ID: Final = "langfuse.session.id"
LANGFUSE_METADATA: Final = "langfuse.observation.metadata."
"""Prefix; the name follows."""

# --- LangSmith (its _internal/otel/_otel_exporter.py) --------------------------------------------
LANGSMITH_SPAN_KIND: Final = "langsmith.span.kind"
LANGSMITH_RUN_NAME: Final = "langsmith.trace.name"
LANGSMITH_METADATA: Final = "langsmith.metadata."
"""Prefix; the name follows."""
LANGSMITH_INPUT: Final = "gen_ai.prompt"
LANGSMITH_OUTPUT: Final = "gen_ai.completion"

# --- Haystack, Anthropic, Google ADK, Claude Code ------------------------------------------------
HAYSTACK_TOOL_NAME: Final = "haystack.tool.name"
HAYSTACK_TOOL_ERROR: Final = "haystack.tool.error"
HAYSTACK_TOOL_INPUT: Final = "haystack.agent.step.tool.input"
HAYSTACK_TOOL_OUTPUT: Final = "haystack.agent.step.tool.output"
ANTHROPIC_TOOL_RESULT: Final = "anthropic.tool_result.content"
ADK_TOOL_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
ADK_TOOL_RESPONSE: Final = "gcp.vertex.agent.tool_response"
ADK_SESSION_ID: Final = "gcp.vertex.agent.session_id"
CLAUDE_CODE_TOOL_NAME: Final = "tool_name"
CLAUDE_CODE_TOOL_USE_ID: Final = "tool_use_id"
CLAUDE_CODE_TOOL_INPUT: Final = "tool_input"

# --- LangChain, whose metadata every instrumentation of it copies -------------------------------
CONVERSATION_NAMES: Final = ("session_id", "conversation_id", "thread_id")
"""Names under which metadata tell the conversation, in the order of OpenInference's instrumentation of LangChain."""
AGENT_NAME_IN_METADATA: Final = "lc_agent_name"
CALL_ID_IN_METADATA: Final = "tool_call_id"
METADATA: Final = "metadata"
"""OpenInference: the metadata as one JSON object."""

# --- Exceptions and errors (docs/exceptions, docs/registry/attributes/error.md) ----------------
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"
ERROR_TYPE: Final = "error.type"

# --- Ours: written on the span that stands for the failed call, searchable in Jaeger -----------
KEPT: Final = "error_hygiene.kept"
"""True on every span that went through the outbox; a collector's lanes are split by it."""
LINE: Final = "error_hygiene.line"
CLASS: Final = "error_hygiene.class"
BUCKET: Final = "error_hygiene.bucket"
RECOVERABLE: Final = "error_hygiene.recoverable"
ATTEMPT: Final = "error_hygiene.attempt"
FINGERPRINT: Final = "error_hygiene.fingerprint"
REF: Final = "error_hygiene.ref"
CONVERSATION: Final = "error_hygiene.conversation"
UNFINISHED: Final = "error_hygiene.unfinished"
"""True on a span that was sent without its end: the process died, or no span ever came."""
TOLD_EVENT: Final = "error_hygiene.told"
"""Event beside the exception: the line, at the moment at which the agent got it."""
LINK_KIND: Final = "error_hygiene.link"
"""On a link of a recovering span: ``cleared``, the failed call that this success resolved."""

# --- Facts of an exception, keys of ``ExceptionNode.facts`` ------------------------------------
HTTP_STATUS_CODE: Final = "http.response.status_code"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_HEADER: Final = "http.response.header."
"""Prefix; the lower-case header name follows. Only headers that tell when to retry are kept."""
RPC_GRPC_STATUS: Final = "rpc.grpc.status"
ERRNO: Final = "errno"
SQLSTATE: Final = "db.sqlstate"
PROVIDER_CODE: Final = "error.code"
"""A provider's or protocol's own error code, as text (``ThrottlingException``, ``-32602``)."""
RETRY_AFTER_SECONDS: Final = "retry_after_seconds"
"""Seconds to wait from now, where an attribute says so in seconds."""
