import assert from "node:assert/strict";
import { test } from "node:test";
import { split } from "../src/api/events.ts";

const STREAM = ": keep-alive\n\nevent: requests\ndata: {\"a\":\ndata: 1}\n\ndata: plain\r\n\r\n";

test("events are the same wherever the stream is cut", () => {
  const whole = split(STREAM).whole;
  assert.deepEqual(whole, [{ event: "requests", data: '{"a":\n1}' }, { event: "message", data: "plain" }]);
  for (let cut = 0; cut <= STREAM.length; cut += 1) {
    const one = split(STREAM.slice(0, cut));
    const other = split(one.rest + STREAM.slice(cut));
    assert.deepEqual([...one.whole, ...other.whole], whole, `cut at ${cut}`);
  }
});
