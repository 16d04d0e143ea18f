"""What the captures of tests/data/captures say, written by reading them: spans, what the model saw, what the case did.

One word for each tool span, in the order in which they ended: the tool as the model calls it, and how the call ended:
nothing for a success, ``!`` for a failure, ``~`` for a cancellation.
"""

from __future__ import annotations

from typing import NamedTuple

_AGENT_FRAMEWORK = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! reserve_stock! reserve_stock ship_order!
    search_catalog fetch_weather! fetch_weather! charge_card! fetch_weather! fetch_weather! fetch_weather!
    fetch_weather!"""
_ANTHROPIC = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! reserve_stock!
    reserve_stock ship_order! search_catalog fetch_weather! fetch_weather_hooked! fetch_weather! fetch_weather!
    fetch_weather!"""
# ADK's retry plugin hands the exception to the model as data; without content nobody can tell it from a success.
_ADK = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! delete_everything!
    reserve_stock! create_invoice! refund_error_dict! search_catalog fetch_weather!
    fetch_weather{0} charge_card{0} reserve_stock{0} reserve_stock fetch_weather! fetch_weather! delete_everything!"""
# The tool `lookup_vat` returns a message of status "error", and `reserve_stock` has its exception made one.
_LANGCHAIN = """
    search_catalog fetch_weather! create_invoice! charge_card! reserve_stock! track_order! create_invoice!
    search_catalog reserve_stock! search_catalog lookup_vat! search_catalog fetch_weather! create_invoice!
    charge_card! track_order! reserve_stock! create_invoice! create_invoice fetch_weather! create_invoice!
    create_invoice! search_catalog fetch_weather! create_invoice! charge_card! track_order! reserve_stock!
    create_invoice! create_invoice {} fetch_weather! fetch_weather!"""
_MCP_STDIO = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! delete_everything!
    reserve_stock! reserve_stock ship_order! refund_error_result! slow_for_client"""
# `slow_fw_timeout` is stopped by the framework, which tells the model in prose; its span says OK.
_OPENAI_AGENTS = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! reserve_stock!
    reserve_stock slow_fw_timeout slow_fw_timeout_raise! search_catalog! search_catalog fetch_weather!
    fetch_weather_hooked! charge_card_hooked! fetch_weather! fetch_weather_recorded! fetch_weather_raising!"""
# A hook that answers with text instead of the exception leaves nothing on the span.
_PYDANTIC_AI = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! reserve_stock! ship_order!
    ship_order_chained! refund! slow_fw_timeout! ship_order! ship_order! search_catalog fetch_weather! fetch_weather
    fetch_weather! fetch_weather! fetch_weather"""
_STRANDS = """
    search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! delete_everything!
    reserve_stock! reserve_stock refund_error_result! search_catalog fetch_weather! fetch_weather!"""
_DSPY = """
    search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat create_invoice! create_invoice!
    create_invoice finish"""

OUTCOMES = {
    "agent-framework": _AGENT_FRAMEWORK,
    "agent-framework-sensitive": _AGENT_FRAMEWORK,
    "anthropic": _ANTHROPIC,
    "anthropic-content": _ANTHROPIC,
    "anthropic-content-traceloop": _ANTHROPIC,
    # Of `cancel_order` the span says nothing; the CancelledError that passed through it is not in a capture.
    "autogen": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat create_invoice!
        create_invoice search_catalog fetch_weather! create_invoice! charge_card! search_catalog fetch_weather!
        charge_card! cancel_order fetch_weather! create_invoice!""",
    "crewai": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat create_invoice!
        create_invoice search_catalog fetch_weather! charge_card! search_catalog fetch_weather! create_invoice!
        charge_card! track_order! fetch_weather! create_invoice!""",
    "dspy": f"""
        {_DSPY} {_DSPY} fetch_weather create_invoice finish search_catalog fetch_weather! create_invoice! charge_card!
        create_invoice submit""",
    # Three spans of each call: the server's, the transport's (it says nothing of a failed tool), the client's.
    "fastmcp": """
        search_catalog search_catalog search_catalog fetch_weather! fetch_weather fetch_weather!
        create_invoice! create_invoice create_invoice! charge_card! charge_card charge_card!
        slow_lookup! slow_lookup slow_lookup! create_invoice! create_invoice create_invoice!
        delete_everything! delete_everything delete_everything! reserve_stock! reserve_stock reserve_stock!
        reserve_stock reserve_stock reserve_stock ship_order! ship_order ship_order!
        ship_order_chained! ship_order_chained ship_order_chained!
        refund_error_result refund_error_result refund_error_result!
        slow_fw_timeout! slow_fw_timeout slow_fw_timeout! slow_for_client! slow_for_client! slow_for_client
        fetch_weather! fetch_weather fetch_weather! charge_card! charge_card charge_card!
        fetch_weather! fetch_weather fetch_weather! fetch_weather! fetch_weather fetch_weather!
        fetch_weather! fetch_weather fetch_weather!""",
    "google-adk": _ADK.format(""),
    "google-adk-content": _ADK.format("!"),
    "google-adk-legacy": _ADK.format("!"),
    # `lookup_vat` returns {"error": ...}: data that says so, though Haystack's own flag is not there.
    "haystack": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat! create_invoice!
        create_invoice! create_invoice search_catalog fetch_weather! create_invoice! charge_card! track_order!
        lookup_vat! create_invoice! create_invoice! create_invoice search_catalog fetch_weather! charge_card!
        fetch_weather! charge_card! search_catalog fetch_weather! fetch_weather! create_invoice! fetch_weather!
        create_invoice!""",
    "haystack-openinference": "",
    "langchain-langsmith": _LANGCHAIN.format("search_catalog fetch_weather! charge_card!"),
    "langchain-openinference": _LANGCHAIN.format("fetch_weather! search_catalog charge_card!"),
    "langchain-traceloop": _LANGCHAIN.format("search_catalog fetch_weather! charge_card!"),
    "langfuse": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! reserve_stock! create_invoice!
        list_orders! create_invoice fetch_weather! create_invoice! charge_card! track_order! cancel_order~
        fetch_weather! fetch_weather_cached fetch_weather!""",
    # `lookup_vat` returns an output whose `is_error` is true; LlamaIndex wraps it into one whose is false.
    "llamaindex": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat! create_invoice!
        create_invoice! create_invoice search_catalog fetch_weather! create_invoice! charge_card! track_order!
        search_catalog fetch_weather! charge_card! fetch_weather! track_order! fetch_weather! create_invoice!
        fetch_weather! create_invoice!""",
    "mcp": """
        search_catalog fetch_weather! create_invoice! charge_card! slow_lookup! create_invoice! delete_everything!
        reserve_stock! reserve_stock ship_order! ship_order_chained! protocol_error! refund_error_result!
        slow_for_client fetch_weather!""",
    "mcp-stdio-client": """
        search_catalog fetch_weather create_invoice charge_card slow_lookup create_invoice delete_everything
        reserve_stock reserve_stock ship_order refund_error_result slow_for_client!""",
    "mcp-stdio-server": _MCP_STDIO,
    "mcp-v1-traceloop": f"{_MCP_STDIO}!",
    "mcp-v1-traceloop-stdio-client": f"{_MCP_STDIO}!",
    # Its server's spans name neither tool nor kind.
    "mcp-v1-traceloop-stdio-server": "",
    "openai-agents": _OPENAI_AGENTS,
    "openai-agents-0.11": _OPENAI_AGENTS,
    "openai-agents-traceloop": _OPENAI_AGENTS,
    "pydantic-ai": _PYDANTIC_AI,
    "pydantic-ai-no-content": _PYDANTIC_AI,
    "pydantic-ai-openai-wire": "search_catalog create_invoice! ship_order! refund! slow_fw_timeout!",
    "smolagents": """
        search_catalog fetch_weather! create_invoice! charge_card! track_order! lookup_vat create_invoice final_answer
        search_catalog fetch_weather! charge_card! final_answer search_catalog fetch_weather! create_invoice!
        charge_card! track_order! create_invoice! fetch_weather! create_invoice final_answer fetch_weather! final_answer
        fetch_weather! final_answer fetch_weather! final_answer""",
    "strands-agents": _STRANDS,
    "strands-agents-latest": _STRANDS,
}


class Facts(NamedTuple):
    """What one tool span tells of its call; None where it tells nothing."""

    call_id: str | None = None
    arguments: str | None = None
    conversation: str | None = None
    agent: str | None = None


LAMP = '{"query":"lamp"}'
INVOICE = '{"amount":-5,"customer":"ACME"}'
INVOICE_FLOAT = '{"amount":-5.0,"customer":"ACME"}'
CARD = '{"amount":12.5,"card_token":"tok_test"}'
CARD_ID = '{"amount":39.9,"card_id":"card_77"}'
_NAME = "shop_agent"

# The first, the third and the fourth tool span of each capture.
FACTS: dict[str, tuple[Facts, Facts, Facts]] = {
    "agent-framework": (Facts("call_1_0_0"), Facts("call_3_0_0"), Facts("call_4_0_0")),
    "agent-framework-sensitive": (
        Facts("call_1_0_0", LAMP), Facts("call_3_0_0", INVOICE_FLOAT), Facts("call_4_0_0", CARD),
    ),
    "anthropic": (
        Facts("toolu_1_0_0", None, "conv-42"), Facts("toolu_3_0_0", None, "conv-42"),
        Facts("toolu_4_0_0", None, "conv-42"),
    ),
    "anthropic-content": (
        Facts("toolu_1_0_0", LAMP, "conv-42"), Facts("toolu_3_0_0", INVOICE, "conv-42"),
        Facts("toolu_4_0_0", CARD, "conv-42"),
    ),
    "anthropic-content-traceloop": (
        Facts("toolu_1_0_0", LAMP, "conv-42"), Facts("toolu_3_0_0", INVOICE, "conv-42"),
        Facts("toolu_4_0_0", CARD, "conv-42"),
    ),
    "autogen": (
        Facts("call_00a_search_catalog"), Facts("call_02a_create_invoice"), Facts("call_03a_charge_card"),
    ),
    "crewai": (
        Facts(None, LAMP, "sess-native-sequence"), Facts(None, INVOICE_FLOAT, "sess-native-sequence"),
        Facts(None, CARD_ID, "sess-native-sequence"),
    ),
    "dspy": (
        Facts(None, LAMP, "sess-react-sequence"), Facts(None, INVOICE_FLOAT, "sess-react-sequence"),
        Facts(None, CARD_ID, "sess-react-sequence"),
    ),
    "fastmcp": (Facts(), Facts(), Facts()),
    # ADK writes "<not specified>" where a tool raised.
    "google-adk": (Facts("call_1_0_0", agent=_NAME), Facts(agent=_NAME), Facts(agent=_NAME)),
    "google-adk-content": (
        Facts("call_1_0_0", LAMP, None, _NAME), Facts(None, INVOICE, None, _NAME), Facts(None, CARD, None, _NAME),
    ),
    "google-adk-legacy": (
        Facts("call_1_0_0", LAMP, None, _NAME), Facts(None, INVOICE, None, _NAME), Facts(None, CARD, None, _NAME),
    ),
    "haystack": (Facts(None, LAMP), Facts(None, INVOICE_FLOAT), Facts(None, CARD_ID)),
    "langchain-langsmith": (
        Facts("call_01a_search_catalog", LAMP, "sess-default-success", _NAME),
        Facts("call_01a_create_invoice", INVOICE_FLOAT, "sess-default-create_invoice", _NAME),
        Facts("call_01a_charge_card", CARD_ID, "sess-default-charge_card", _NAME),
    ),
    # The id stands in the result alone, so a failed call has none; an only argument has lost its name.
    "langchain-openinference": (
        Facts("call_01a_search_catalog", '"lamp"', "sess-default-success", _NAME),
        Facts(None, INVOICE_FLOAT, "sess-default-create_invoice", _NAME),
        Facts(None, CARD_ID, "sess-default-charge_card", _NAME),
    ),
    "langchain-traceloop": (
        Facts("call_01a_search_catalog", LAMP, "sess-default-success", _NAME),
        Facts("call_01a_create_invoice", INVOICE_FLOAT, "sess-default-create_invoice", _NAME),
        Facts("call_01a_charge_card", CARD_ID, "sess-default-charge_card", _NAME),
    ),
    "langfuse": (
        Facts(None, LAMP, "sess-loop-catches"), Facts(None, INVOICE_FLOAT, "sess-loop-catches"),
        Facts(None, CARD_ID, "sess-loop-catches"),
    ),
    "llamaindex": (
        Facts(None, LAMP, "sess-functionagent-streaming"), Facts(None, INVOICE_FLOAT, "sess-functionagent-streaming"),
        Facts(None, CARD_ID, "sess-functionagent-streaming"),
    ),
    "mcp": (Facts(), Facts(), Facts()),
    "mcp-stdio-client": (Facts(), Facts(), Facts()),
    "mcp-stdio-server": (Facts(), Facts(), Facts()),
    "mcp-v1-traceloop": (Facts(None, LAMP), Facts(None, INVOICE), Facts(None, CARD)),
    "mcp-v1-traceloop-stdio-client": (Facts(None, LAMP), Facts(None, INVOICE), Facts(None, CARD)),
    "openai-agents": (Facts(None, LAMP), Facts(None, INVOICE), Facts(None, CARD)),
    "openai-agents-0.11": (Facts(None, LAMP), Facts(None, INVOICE), Facts(None, CARD)),
    "openai-agents-traceloop": (Facts(None, LAMP), Facts(None, INVOICE), Facts(None, CARD)),
    "pydantic-ai": (
        Facts("call_1_0_0", LAMP, "conv-42", _NAME), Facts("call_3_0_0", INVOICE, "conv-42", _NAME),
        Facts("call_4_0_0", CARD, "conv-42", _NAME),
    ),
    "pydantic-ai-no-content": (
        Facts("call_1_0_0", None, "conv-42", _NAME), Facts("call_3_0_0", None, "conv-42", _NAME),
        Facts("call_4_0_0", None, "conv-42", _NAME),
    ),
    "pydantic-ai-openai-wire": (
        Facts("call_0", LAMP, "conv-42", _NAME), Facts("call_0", '{"order_id":"A-1"}', "conv-42", _NAME),
        Facts("call_0", '{"order_id":"A-1"}', "conv-42", _NAME),
    ),
    "smolagents": (
        Facts(None, LAMP, "sess-toolcalling-sequence"), Facts(None, INVOICE_FLOAT, "sess-toolcalling-sequence"),
        Facts(None, CARD_ID, "sess-toolcalling-sequence"),
    ),
    "strands-agents": (
        Facts("tooluse_1_0_0", LAMP, "conv-42"), Facts("tooluse_3_0_0", INVOICE, "conv-42"),
        Facts("tooluse_4_0_0", CARD, "conv-42"),
    ),
    "strands-agents-latest": (
        Facts("tooluse_1_0_0", LAMP, "conv-42"), Facts("tooluse_3_0_0", INVOICE, "conv-42"),
        Facts("tooluse_4_0_0", CARD, "conv-42"),
    ),
}  # fmt: skip

# How many spans are model calls, and how many are runs of an agent; the agents' names.
BOUNDARIES: dict[str, tuple[int, int, set[str | None]]] = {
    "agent-framework": (33, 15, {_NAME}),
    "agent-framework-sensitive": (33, 15, {_NAME}),
    "anthropic": (27, 13, {None}),  # its tool runner has no name
    "anthropic-content": (27, 13, {None}),
    "anthropic-content-traceloop": (54, 13, {None}),
    "autogen": (0, 5, {_NAME}),
    "crewai": (0, 6, {_NAME}),
    "dspy": (35, 0, set()),
    "fastmcp": (0, 0, set()),
    "google-adk": (28, 17, {_NAME}),
    "google-adk-content": (28, 17, {_NAME}),
    "google-adk-legacy": (56, 17, {_NAME}),  # `call_llm` around `generate_content`
    "haystack": (36, 9, {None}),
    "haystack-openinference": (0, 0, set()),
    "langchain-langsmith": (46, 13, {_NAME}),  # two more graphs bear no agent's name
    "langchain-openinference": (46, 30, {_NAME, "agent"}),  # and a node of that name
    "langchain-traceloop": (46, 30, {_NAME}),
    "langfuse": (16, 6, {_NAME}),
    "llamaindex": (31, 0, set()),
    "mcp": (0, 0, set()),
    "mcp-stdio-client": (0, 0, set()),
    "mcp-stdio-server": (0, 0, set()),
    "mcp-v1-traceloop": (0, 0, set()),
    "mcp-v1-traceloop-stdio-client": (0, 0, set()),
    "mcp-v1-traceloop-stdio-server": (0, 0, set()),
    "openai-agents": (0, 36, {_NAME, "shop workflow"}),
    "openai-agents-0.11": (0, 34, {_NAME, "shop workflow"}),
    "openai-agents-traceloop": (0, 18, {_NAME}),
    "pydantic-ai": (30, 18, {_NAME}),
    "pydantic-ai-no-content": (30, 18, {_NAME}),
    "pydantic-ai-openai-wire": (12, 6, {_NAME}),
    "smolagents": (0, 6, {_NAME}),
    "strands-agents": (23, 11, {_NAME}),
    "strands-agents-latest": (23, 11, {_NAME}),
}
