/** Asks the server. The API key lives in this tab's session storage and is sent as a header, never in an address. */
import { signal } from "@preact/signals";

const ROOT = "/inspect/api/";
const KEY = "zllm-inspect-key";

/** What went wrong, in the server's words; `status` 0: the server was not reached. */
export class ApiFailure extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** True: the server wants a key and has not got the right one. */
export const needsKey = signal(false);
/** True: a key was sent and refused. */
export const keyRefused = signal(false);
/** Counts the keys entered: whoever shows facts asks again when it changes. */
export const keyGeneration = signal(0);

export function storedKey(): string | null {
  return sessionStorage.getItem(KEY);
}

export function enterKey(key: string): void {
  sessionStorage.setItem(KEY, key);
  keyRefused.value = false;
  needsKey.value = false;
  keyGeneration.value += 1;
}

export function forgetKey(): void {
  sessionStorage.removeItem(KEY);
  keyRefused.value = false;
  needsKey.value = true;
  keyGeneration.value += 1;
}

/** `path` begins behind /inspect/api/. Throws ApiFailure. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await asked(ROOT + path, { signal })).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await asked(ROOT + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  return response.json() as Promise<T>;
}

export function asked(url: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = storedKey();
  if (key) headers.set("authorization", `Bearer ${key}`);
  return fetch(url, { ...init, headers }).then(
    async (response) => {
      if (response.ok) return response;
      const failure = await failureOf(response);
      if (response.status === 401) {
        keyRefused.value = key !== null;
        needsKey.value = true;
      }
      throw failure;
    },
    (error: unknown) => {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new ApiFailure(0, "unreachable", String(error));
    },
  );
}

async function failureOf(response: Response): Promise<ApiFailure> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new ApiFailure(response.status, error.code ?? error.type ?? "error", error.message);
  } catch {
    return new ApiFailure(response.status, "error", text.slice(0, 200) || response.statusText);
  }
}
