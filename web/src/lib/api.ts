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

  /** Whether the server could not be asked at all. */
  get isOffline(): boolean {
    return this.status === 0
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
  key: string = crypto.randomUUID(),
): Promise<T> {
  const headers: Record<string, string> = { 'X-CSRF-Token': await token(), 'Idempotency-Key': key }
  const init: RequestInit = { method, headers }
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json'
    init.body = JSON.stringify(body)
  }
  return answer<T>(await ask(url(path), init))
}

export function token(): Promise<string> {
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
  const said = (await response.json().catch(() => ({}))) as Record<string, string>
  const kind = (said['type'] ?? '').replace('urn:hansard:problem:', '')
  if (response.status === 401) toLogin()
  throw new Problem(response.status, kind, said['detail'] ?? response.statusText, said['committed'])
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
