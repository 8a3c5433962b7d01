import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Draft } from '../src/lib/composer/draft.svelte'

let stored: string[]

beforeEach(() => {
  vi.useFakeTimers()
  localStorage.clear()
  stored = []
  vi.stubGlobal('fetch', (_: string, request: RequestInit) => {
    if (request.method === 'PATCH') stored.push((JSON.parse(String(request.body)) as { draft: string }).draft)
    return Promise.resolve(Response.json({}))
  })
})

afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

test("the server's draft is put before what was typed while it was loaded", () => {
  const draft = new Draft('s1', null)
  draft.setText('typed')
  draft.mergeServerDraft('from the phone')
  expect(draft.text).toBe('from the phone\ntyped')
})

test('a text that was stored by this page and sent since does not come back with the details', async () => {
  const draft = new Draft('s1', null)
  draft.setText('are you there?')
  await vi.advanceTimersByTimeAsync(1000)
  draft.removeSent('are you there?')
  draft.mergeServerDraft('are you there?')
  expect(draft.text).toBe('')
  await vi.advanceTimersByTimeAsync(1000)
  expect(stored.at(-1)).toBe('')
})
