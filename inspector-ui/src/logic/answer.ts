/** An answer of Chat Completions as it grows, chunk by chunk: what was thought, and what was said, refused or called. */
export interface Answer {
  reasoning: string;
  text: string;
}

interface Call {
  function?: { name?: string; arguments?: string };
  custom?: { name?: string; input?: string };
}

export interface Chunk {
  choices?: { delta?: { content?: string | null; refusal?: string | null; reasoning_content?: string | null; tool_calls?: Call[] } }[];
  error?: { message: string };
}

/** The answer with a chunk behind it. A call begins a line with its name. */
export function grown({ reasoning, text }: Answer, chunk: Chunk): Answer {
  const delta = chunk.choices?.[0]?.delta ?? {};
  const calls = (delta.tool_calls ?? []).map(({ function: known, custom }) => {
    const name = known?.name ?? custom?.name;
    return (name ? `\n${name} ` : "") + (known?.arguments ?? custom?.input ?? "");
  });
  return { reasoning: reasoning + (delta.reasoning_content ?? ""), text: text + (delta.content ?? "") + (delta.refusal ?? "") + calls.join("") };
}
