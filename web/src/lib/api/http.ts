/** Requests to the server. A failure is an `ApiError` with a readable message. */
import type { CallerInfo } from './schema'
import type { Json } from './types'

const BASE = '/api/v1'

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly committed: string = 'no',
  ) {
    super(message)
  }

  /** Whether the server was unreachable, or a proxy in front of it says so. */
  get isOffline(): boolean {
    return this.status === 0 || (!this.kind && [502, 503, 504].includes(this.status))
  }
}

let csrf: Promise<string> | null = null

type Query = Record<string, string | number | boolean | null | undefined | string[]>

export function apiUrl(path: string, query: Query = {}): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) search.append(name, each)
    else if (value !== null && value !== undefined && value !== '') search.set(name, String(value))
  }
  const text = search.toString()
  return `${BASE}${path}${text ? `?${text}` : ''}`
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return readResponse<T>(await request(apiUrl(path, query), signal ? { signal } : {}))
}

/** Send a change. Sending the same key again has no further effect. */
export async function send<T>(
  method: 'POST' | 'PATCH' | 'DELETE' | 'PUT',
  path: string,
  body?: Json | object,
  key: string = randomKey(),
): Promise<T> {
  const headers: Record<string, string> = { 'Idempotency-Key': key }
  const init: RequestInit = { method, headers }
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json'
    init.body = JSON.stringify(body)
  }
  return withCsrfToken(async (token) =>
    readResponse<T>(await request(apiUrl(path), { ...init, headers: { ...headers, 'X-CSRF-Token': token } })),
  )
}

/** Run a request with the CSRF token. A new login, in any tab, changes the token: retry once. */
export async function withCsrfToken<T>(act: (token: string) => Promise<T>): Promise<T> {
  try {
    return await act(await token())
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 403) throw error
    csrf = null
    return act(await token())
  }
}

/** A random key. `crypto.randomUUID` exists only on https pages and on localhost. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function token(): Promise<string> {
  csrf ??= get<CallerInfo>('/me').then((me) => me.csrf ?? '')
  csrf.catch(() => (csrf = null))
  return csrf
}

async function request(address: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(address, { credentials: 'same-origin', ...init })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError(0, 'offline', 'The server does not answer.', 'unknown')
  }
}

async function readResponse<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T
  throw responseError(response.status, await response.text().catch(() => ''))
}

/** The error in a response. A proxy may have answered with another format, or with nothing. */
export function responseError(status: number, body: string): ApiError {
  if (status === 401) redirectToLogin()
  let fields: Record<string, string> = {}
  try {
    fields = JSON.parse(body) as Record<string, string>
  } catch {
    // Not an answer of our server: the status must be enough.
  }
  const kind = (fields['type'] ?? '').replace('urn:sessionary:problem:', '')
  return new ApiError(
    status,
    kind,
    fields['detail'] ?? `The server, or a proxy in front of it, answered with status ${status}.`,
    fields['committed'],
  )
}

/** The login has expired: log in and come back to this page. */
function redirectToLogin(): void {
  const here = location.pathname + location.search + location.hash
  location.assign(here === '/' ? '/login' : `/login?next=${encodeURIComponent(here)}`)
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
