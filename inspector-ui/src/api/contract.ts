/** The JSON under /inspect/api/, as docs/inspector.md says it. Unknown is null; nothing is absent. */

/** First and one past the last, on the token axis or in UTF-16 units. */
export type Span = [number, number];

export interface About {
  version: string | null;
  model: string | null;
  architecture: string | null;
  dialect: string | null;
  vocabulary_size: number | null;
  context_length: number | null;
  keys_required: boolean;
  namespace: string | null;
  max_requests: number | null;
  max_bytes: number | null;
}

export type RequestState = "queued" | "prefill" | "decoding" | "ended" | "failed" | "refused" | "cancelled";

export interface Summary {
  id: string;
  number: number;
  protocol: "chat" | "responses" | "messages";
  transport: "sse" | "unary" | "websocket" | "background";
  path: string;
  client: string;
  user_agent: string;
  model: string | null;
  state: RequestState;
  received_at_ms: number;
  prompt_tokens: number | null;
  cached_resident: number | null;
  cached_ssd: number | null;
  computed_tokens: number | null;
  output_tokens: number;
  reasoning_tokens: number;
  queue_ms: number | null;
  restore_ms: number | null;
  prefill_ms: number | null;
  ttft_ms: number | null;
  render_ms: number | null;
  decode_tokens_per_second: number | null;
  total_ms: number | null;
  end_reason: string | null;
  error: string | null;
  num_choices: number;
  cause: string | null;
  draft: { proposed: number; accepted: number };
}

export interface Requests {
  cursor: number;
  requests: Summary[];
  gone: string[] | null;
}

export type PanelName = "wire" | "conversation" | "segments" | "tokens" | "context" | "prefix" | "decode";

export interface Detail {
  summary: Summary;
  axis: { prompt: number; output: number };
  text_utf16: number;
  prompt_utf16: number;
  panels: Record<PanelName, boolean>;
}

export interface WirePart {
  path: string;
  utf16: Span;
  tokens: Span | null;
  message: number | null;
}

export interface Frame {
  index: number;
  at_ms: number;
  event: string | null;
  data: string;
  tokens: Span | null;
}

export interface Wire {
  request: { method: string; path: string; headers: [string, string][]; body: string; body_bytes: number; cut: number };
  parts: WirePart[];
  response: { status: number | null; frames: Frame[]; num_frames: number; cut: number };
}

export type PartKind = "text" | "reasoning" | "tool_call" | "custom_tool_call" | "tool_result";

export interface MessagePart {
  kind: PartKind;
  text: string;
  name: string | null;
  call_id: string | null;
  is_error: boolean;
  tokens: Span | null;
  replayed: boolean;
  cut?: number;
}

export interface Message {
  index: number;
  role: string;
  parts: MessagePart[];
  tokens: Span | null;
}

export interface ConversationTool {
  name: string;
  description: string | null;
  parameters: unknown;
  kind: "function" | "custom";
  tokens: Span | null;
}

export interface Conversation {
  messages: Message[];
  tools: ConversationTool[];
  settings: Record<string, unknown>;
  output: Message | null;
}

export interface Segment {
  index: number;
  kind: "marker" | "text" | "replay" | "output";
  role: string | null;
  origin: "client" | "template" | "tool_schema" | "model";
  tokens: Span;
  utf16: Span;
  bytes: Span;
  message: number | null;
}

export interface Segments {
  dialect: string | null;
  segments: Segment[];
  text: string;
}

export const FLAG = { special: 1, partial: 2, output: 4, reused: 8, forced: 16, accepted: 32, replayed: 64 } as const;

export interface TokenColumns {
  start: number;
  end: number;
  total: number;
  ids: number[];
  bytes: string[];
  text: (string | null)[];
  flags: number[];
  utf16: Span[];
  segments: number[];
}

export type RegionKind = "hit_resident" | "hit_ssd" | "recomputed" | "output";

export interface Context {
  block_tokens: number;
  bytes_per_token: number;
  fixed_bytes: number;
  context_length: number;
  cuttable: boolean;
  spans: { kind: RegionKind; tokens: Span; bytes: number }[];
  blocks: { index: number; tokens: Span; kind: RegionKind; bytes: number; kept: "resident" | "ssd" | "both" | null }[];
  cache_id: string | null;
  hit_cache_id: string | null;
}

export interface CompositionItem {
  kind: string;
  tokens: number;
  share: number;
  cached_tokens: number;
  spans: Span[];
  cost_cached: number;
  cost_uncached: number;
  cost: number;
  ms_uncached: number | null;
}

export interface Prefix {
  prices: { input: number; cached: number; currency: string };
  composition: CompositionItem[];
  total: Omit<CompositionItem, "kind">;
  nearest: Nearest | null;
  cause: Cause | null;
}

export interface Nearest {
  request: string | null;
  what: "request" | "state";
  cache_id: string | null;
  length: number;
  fork: number;
  lost_tokens: number;
  namespace_differs: boolean;
  before: string;
  earlier: string;
  now: string;
  window: { before: Span; now: Span; earlier: Span };
  segment: number | null;
}

/** A sentence of the server's by its name, and what is filled in: texts in question, numbers, lists of names. */
export interface Sentence {
  name: string;
  values: Record<string, string | number | string[]>;
}

export interface Cause {
  name: string;
  title: string;
  /** In English. */
  detail: string;
  /** The same, for whoever says it in another language. */
  said: Sentence[];
  tokens: Span | null;
  lost_tokens: number;
}

export interface Alternative {
  id: number;
  text: string | null;
  bytes: string;
  logprob: number;
}

export interface DecodedToken {
  index: number;
  position: number;
  id: number;
  text: string | null;
  bytes: string;
  special: boolean;
  how: "sampled" | "forced" | "accepted";
  round: number;
  at_ms: number;
  phase: string | null;
  excluded: { id: number; text: string | null }[];
  logprob: number | null;
  top: Alternative[] | null;
}

export interface Round {
  round: number;
  tokens: Span;
  at_ms: number;
  proposed: { id: number; text: string | null; accepted: boolean }[];
}

export interface Decode {
  total: number;
  tokens: DecodedToken[];
  rounds: Round[];
  fence: boolean;
  drafter: string | null;
  alternatives: boolean;
}

export type Tier = "resident" | "ssd" | "both";

export interface Gauge {
  resident_bytes: number;
  capacity_bytes: number;
  pinned_bytes: number;
  reserved_bytes: number;
  ssd_bytes: number;
  ssd_capacity_bytes: number | null;
  num_states: number;
  num_blocks: number;
}

export interface CacheState {
  cache_id: string;
  length: number;
  round: number;
  is_unit: boolean;
  last_used_rank: number;
  last_used_at_ms: number | null;
  tier: Tier;
  request: string | null;
  bytes: number;
}

export interface CacheNode {
  key: string;
  tokens: Span;
  num_blocks: number;
  bytes: number;
  tier: Tier;
  pins: number;
  text: string;
  tail: string;
  state: CacheState | null;
  children: CacheNode[];
}

export interface Cache {
  gauge: Gauge;
  roots: CacheNode[];
  cut: number | null;
}

export interface KvModel {
  name: string;
  architecture: string;
  is_loaded: boolean;
  bytes_per_token: number;
  fixed_bytes: number;
  total_bytes: number;
  layers: number | null;
  parts: { name: string; bytes_per_token: number; fixed_bytes: number }[];
  note: string;
}

export interface Kv {
  tokens: number;
  models: KvModel[];
}

export interface Control {
  name: string;
  title: string;
  kind: "soft" | "hard";
  reasoning: Reasoning;
}

export interface Reasoning {
  enabled: boolean | null;
  effort: string | null;
}

export interface Family {
  name: string;
  title: string;
  dialect: string | null;
  source: string;
  tokenizer: { name: string; is_real: boolean; source: string; vocabulary_size: number | null; note: string | null };
  has_tools: boolean;
  control: "soft" | "hard" | "both" | "none";
  controls: Control[];
  can_run: boolean;
}

export interface Rendered {
  family: string;
  /** What this template leaves out. */
  notes: string[];
  segments: Segment[];
  text: string;
  tokens: TokenColumns;
  num_tokens: number;
  reusable: { tokens: number; tier: Tier | null; cache_id: string | null } | null;
  typed_markers: { text: string; utf16: Span; tokens: Span }[];
  chat_request: Record<string, unknown> | null;
}

export interface Word {
  text: string;
  start: number;
  symbols: string[];
  merges: { rank: number; left: string; right: string; at: number }[];
  ids: number[];
}

export interface Merges {
  words: Word[];
}
