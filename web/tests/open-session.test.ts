import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { live } from '../src/lib/live/live.svelte'
import { OpenSession } from '../src/lib/transcript/open-session.svelte'
import type { SessionDetail } from '../src/lib/api/schema'
import type { Entry } from '../src/lib/api/types'

const ID = 'a'
const TURN = 't1'

/** The stream of the server, as far as a test sends it. */
class FakeEventSource extends EventTarget {
  static last: FakeEventSource
  onerror: (() => void) | null = null
  constructor(readonly url: string) {
    super()
    FakeEventSource.last = this
  }
  close(): void {}
}

function emit(name: string, data: object, id = '0'): void {
  FakeEventSource.last.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data), lastEventId: id }))
}

const emitTurn = (name: string, data: unknown = null) => emit(name, { session_id: ID, turn_id: TURN, data })

const entry = (seq: number, role: string, text: string) =>
  ({ kind: 'message', session_id: ID, seq, role, text, turn_id: TURN, parts: [] }) as unknown as Entry

function detail(lastSeq: number, partial: string | null = null, waiting = false): SessionDetail {
  const reason = waiting ? 'its process died' : null
  const turn =
    partial === null ? null : { id: TURN, partial, began_at: '2026-03-15T12:00:00Z', waiting, resume_reason: reason }
  const lists = { queued: [], branches: [], pins: [] }
  const known = { id: ID, last_seq: lastSeq, running: turn !== null, turn, position: 0, ...lists }
  return known as unknown as SessionDetail
}

/** What the server answers to requests for the details and for the entries. */
const server = { detail: detail(0), entries: [] as Entry[] }
let session: OpenSession

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('EventSource', FakeEventSource)
  vi.stubGlobal('fetch', (url: string) => {
    const page = { items: server.entries, more_before: false, more_after: false }
    return Promise.resolve(Response.json(url.includes('/entries') ? page : server.detail))
  })
  live.start()
  session = new OpenSession(ID)
})

afterEach(() => {
  session.close()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

test('a reply that is stored is not shown again by text that comes after its end', async () => {
  server.detail = detail(1, '')
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()
  emitTurn('began')

  server.detail = detail(2)
  emit('entry', entry(2, 'assistant', 'Hi there.'))
  emit('head', detail(2))
  emitTurn('delta', 'Hi there.')
  await vi.advanceTimersByTimeAsync(100)

  expect(session.entries.map((each) => each.text)).toEqual(['hello', 'Hi there.'])
  expect(session.liveReply).toBeNull()
})

test('a turn of which only the end was seen does not begin again', async () => {
  server.detail = detail(0)
  server.entries = []
  await session.load()

  server.detail = detail(2)
  emit('entry', entry(1, 'user', 'hello'))
  emit('entry', entry(2, 'assistant', 'Hi there.'))
  emit('head', detail(2))
  emitTurn('began')
  emitTurn('delta', 'Hi there.')
  await vi.advanceTimersByTimeAsync(100)

  expect(session.entries).toHaveLength(2)
  expect(session.liveReply).toBeNull()
})

test('a reply is not unfinished if the entries are newer than the details and contain it', async () => {
  server.detail = detail(1, 'Hi th')
  server.entries = [entry(1, 'user', 'hello'), entry(2, 'assistant', 'Hi there.')]

  await session.load()

  expect(session.liveReply?.text).toBe('')
})

test('a stored step leaves the text of the next one', async () => {
  server.detail = detail(2, 'And then')
  server.entries = [entry(1, 'user', 'hello'), entry(2, 'assistant', 'First.')]

  await session.load()

  expect(session.liveReply?.text).toBe('And then')
})

test('a turn that ended while its details were on the way is not shown as running', async () => {
  server.detail = detail(1, 'Hi th')
  server.entries = [entry(1, 'user', 'hello'), entry(2, 'assistant', 'Hi there.')]
  await session.load()

  server.detail = detail(2)
  emit('hello', {}, '7')
  await vi.advanceTimersByTimeAsync(0)

  expect(session.detail?.running).toBe(false)
  expect(session.liveReply).toBeNull()
})

test('details from before a turn began do not end its reply', async () => {
  server.detail = detail(0)
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()

  emitTurn('began')
  emitTurn('delta', 'Hi th')
  await vi.advanceTimersByTimeAsync(100)

  expect(session.liveReply?.text).toBe('Hi th')
})

test('a turn whose process has died waits, and goes on when another one has it', async () => {
  server.detail = detail(1, 'Hi th')
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()
  expect(session.isWaiting).toBe(false)

  server.detail = detail(1, 'Hi th', true)
  await vi.advanceTimersByTimeAsync(40_000)
  expect(session.isWaiting).toBe(true)
  expect(session.waitReason).toBe('its process died')

  server.detail = detail(2, '')
  emitTurn('began')
  await vi.advanceTimersByTimeAsync(100)
  expect(session.isWaiting).toBe(false)
  expect(session.liveReply?.turnId).toBe(TURN)
})

test('a turn that its process has left to another is still shown', async () => {
  server.detail = detail(1, 'Hi th')
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()

  server.detail = detail(1, 'Hi th', true)
  emitTurn('lost')
  await vi.advanceTimersByTimeAsync(1000)
  expect(session.isWaiting).toBe(true)

  server.detail = detail(2)
  emitTurn('lost')
  await vi.advanceTimersByTimeAsync(1000)
  expect(session.liveReply).toBeNull()
})

test('a record in the log reloads the pins', async () => {
  server.detail = detail(1)
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()
  expect([...session.pinnedSeqs]).toEqual([])

  server.detail = { ...detail(2), pins: [{ seq: 1, role: 'user', text: 'hello', at: '' }] }
  emit('entry', { ...entry(2, 'system', 'pinned'), extra: { record: { kind: 'pin', seq: 1 } } })
  await vi.advanceTimersByTimeAsync(100)

  expect([...session.pinnedSeqs]).toEqual([1])
})

test('a turn that waits for people goes on with the same id', async () => {
  server.detail = detail(1, '')
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()
  emitTurn('delta', 'Let me')
  await vi.advanceTimersByTimeAsync(100)
  expect(session.isAsking).toBe(false)

  server.detail = { ...detail(3, ''), waits_for_people: true }
  const asked = { kind: 'question', question_id: 'q', state: 'open', question: 'text', text: 'When?' }
  emit('entry', { ...entry(3, 'system', 'Asked: When?'), extra: { record: asked } })
  emitTurn('ended', { state: 'waiting', reason: null })
  await vi.advanceTimersByTimeAsync(1000)
  expect(session.isAsking).toBe(true)
  expect(session.endedTurn).toBeNull()
  expect(session.liveReply?.text).toBe('')

  server.detail = detail(4, '')
  emit('head', detail(4, ''))
  emitTurn('began')
  emitTurn('delta', 'At nine')
  await vi.advanceTimersByTimeAsync(100)
  expect(session.detail?.waits_for_people).toBeUndefined()
  expect(session.liveReply?.text).toBe('At nine')
})

test('nothing is asked for while a turn waits for people', async () => {
  server.detail = { ...detail(1, ''), waits_for_people: true }
  server.entries = [entry(1, 'user', 'hello')]
  await session.load()
  const fetched = vi.fn<(url: string) => Promise<Response>>(() => Promise.resolve(Response.json(server.detail)))
  vi.stubGlobal('fetch', fetched)

  await vi.advanceTimersByTimeAsync(120_000)

  expect(fetched.mock.calls.filter(([url]) => url.includes('/sessions/'))).toEqual([])
})
