/** The conversation that a person edits, and the body that it makes. */
import type { Conversation, Reasoning } from "../api/contract.ts";

export interface DraftMessage {
  /** Keeps its text field when messages move. */
  key: number;
  role: "system" | "user" | "assistant" | "tool";
  content: string;
  /** null: the field is not there. */
  reasoning: string | null;
  calls: string | null;
  callId: string;
}

export interface Draft {
  messages: DraftMessage[];
  tools: string;
}

export interface RenderBody {
  family: string;
  messages: Record<string, unknown>[];
  tools: unknown[];
  reasoning: Reasoning;
}

/** A field of the draft that is not JSON. */
export class DraftError extends Error {
  readonly field: "tools" | "calls";
  constructor(field: "tools" | "calls", reason: string) {
    super(reason);
    this.field = field;
  }
}

let keys = 0;

export function message(role: DraftMessage["role"], content: string, more: Partial<DraftMessage> = {}): DraftMessage {
  return { key: ++keys, role, content, reasoning: null, calls: null, callId: "", ...more };
}

export const WEATHER_TOOL = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] },
    },
  },
];

export function example(): Draft {
  const call = [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city": "Rome", "days": 2}' } }];
  return {
    messages: [
      message("system", "You are a weather service. Answer in one sentence."),
      message("user", "How is the weather in Rome? 罗马天气怎么样？"),
      message("assistant", "", { reasoning: "The tool knows.", calls: JSON.stringify(call, null, 1) }),
      message("tool", "Sunny, 24 °C", { callId: "call_1" }),
      message("user", "And tomorrow?"),
    ],
    tools: JSON.stringify(WEATHER_TOOL, null, 1),
  };
}

/** A recorded conversation, to go on from. Its answer comes last, as history. */
export function draftOf(conversation: Conversation): Draft {
  const all = conversation.output ? [...conversation.messages, conversation.output] : conversation.messages;
  const messages = all.flatMap(({ role, parts }) => {
    const results = parts.filter(({ kind }) => kind === "tool_result");
    if (results.length) return results.map((part) => message("tool", part.text, { callId: part.call_id ?? "" }));
    const joined = (kind: string) => parts.filter((part) => part.kind === kind).map((part) => part.text).join("");
    const calls = parts.filter(({ kind }) => kind === "tool_call");
    const wire = calls.map((part) => ({ id: part.call_id ?? "", type: "function", function: { name: part.name ?? "", arguments: part.text } }));
    const known = role === "assistant" || role === "user" ? role : "system";
    return [message(known, joined("text"), { reasoning: joined("reasoning") || null, calls: calls.length ? JSON.stringify(wire, null, 1) : null })];
  });
  const tools = conversation.tools
    .filter(({ kind }) => kind === "function")
    .map(({ name, description, parameters }) => ({ type: "function", function: { name, ...(description === null ? {} : { description }), parameters } }));
  return { messages, tools: tools.length ? JSON.stringify(tools, null, 1) : "" };
}

/** Throws DraftError. */
export function bodyOf(draft: Draft, family: string, reasoning: Reasoning): RenderBody {
  return { family, messages: draft.messages.map(wireOf), tools: parsed("tools", draft.tools), reasoning };
}

function wireOf({ role, content, reasoning, calls, callId }: DraftMessage): Record<string, unknown> {
  if (role === "tool") return { role, tool_call_id: callId, content };
  const wire: Record<string, unknown> = { role, content };
  if (role === "assistant" && reasoning !== null) wire.reasoning_content = reasoning;
  if (role === "assistant" && calls !== null && calls.trim()) {
    wire.tool_calls = parsed("calls", calls);
    if (!content) wire.content = null;
  }
  return wire;
}

function parsed(field: "tools" | "calls", text: string): unknown[] {
  if (!text.trim()) return [];
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch (error) {
    throw new DraftError(field, (error as Error).message);
  }
  throw new DraftError(field, "[…]");
}
