/** Server-sent events over fetch: EventSource cannot send a key. */
import { asked } from "./client.ts";

export interface ServerEvent {
  event: string;
  data: string;
}

/** Yields the events of a stream until it ends or `signal` aborts. Throws ApiFailure when it cannot be opened. */
export async function* events(url: string, init: RequestInit): AsyncGenerator<ServerEvent> {
  const response = await asked(url, init);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const { whole, rest } = split(held);
    held = rest;
    yield* whole;
  }
}

/** The whole events at the beginning of `text`, and what is left. Comments are dropped. */
export function split(text: string): { whole: ServerEvent[]; rest: string } {
  const whole: ServerEvent[] = [];
  const blocks = text.split(/\r?\n\r?\n/);
  const rest = blocks.pop()!;
  for (const block of blocks) {
    let event = "message";
    const data: string[] = [];
    for (const line of block.split(/\r?\n/)) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
    if (data.length) whole.push({ event, data: data.join("\n") });
  }
  return { whole, rest };
}
