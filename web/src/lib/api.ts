/** The one way to the server. An error is a `Problem` that a person can read. */
import type { Json } from './types'

const BASE = '/api/v1'

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly committed: string = 'no',
  ) {
    super(message)
  }

  /** Whether the server could not be asked at all; a proxy before it says so in its own way. */
  get isOffline(): boolean {
    return this.status === 0 || (!this.kind && [502, 503, 504].includes(this.status))
  }
}

let csrf: Promise<string> | null = null

type Query = Record<string, string | number | boolean | null | undefined | string[]>

export function url(path: string, query: Query = {}): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) search.append(name, each)
    else if (value !== null && value !== undefined && value !== '') search.set(name, String(value))
  }
  const text = search.toString()
  return `${BASE}${path}${text ? `?${text}` : ''}`
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(await ask(url(path, query), signal ? { signal } : {}))
}

/** A change. The same key sent again makes it once. */
export async function send<T>(
  method: 'POST' | 'PATCH' | 'DELETE' | 'PUT',
  path: string,
  body?: Json | object,
  key: string = freshKey(),
): Promise<T> {
  const headers: Record<string, string> = { 'Idempotency-Key': key }
  const init: RequestInit = { method, headers }
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json'
    init.body = JSON.stringify(body)
  }
  return withToken(async (said) =>
    answer<T>(await ask(url(path), { ...init, headers: { ...headers, 'X-CSRF-Token': said } })),
  )
}

/** Do it with the word that belongs to the cookie. Who logged in anew, in any tab, has another cookie. */
export async function withToken<T>(act: (token: string) => Promise<T>): Promise<T> {
  try {
    return await act(await token())
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 403) throw error
    csrf = null
    return act(await token())
  }
}

/** A key for a change. Only a page that came encrypted, or from this machine, has `randomUUID`. */
export function freshKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function token(): Promise<string> {
  csrf ??= get<{ csrf: string }>('/me').then((me) => me.csrf)
  csrf.catch(() => (csrf = null))
  return csrf
}

async function ask(address: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(address, { credentials: 'same-origin', ...init })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Problem(0, 'offline', 'The server does not answer.', 'unknown')
  }
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T
  throw problem(response.status, await response.text().catch(() => ''))
}

/** What an answer that is not good says; a proxy between may have its own words, or none. */
export function problem(status: number, body: string): Problem {
  if (status === 401) toLogin()
  let said: Record<string, string> = {}
  try {
    said = JSON.parse(body) as Record<string, string>
  } catch {
    // Not ours: the number says what can be said.
  }
  const kind = (said['type'] ?? '').replace('urn:sessionary:problem:', '')
  return new Problem(
    status,
    kind,
    said['detail'] ?? `The server, or what stands before it, answered ${status}.`,
    said['committed'],
  )
}

/** The login is over: come back to the same place after it. */
function toLogin(): void {
  const here = location.pathname + location.search + location.hash
  location.assign(here === '/' ? '/login' : `/login?next=${encodeURIComponent(here)}`)
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}

export function explain(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
