import { flushSync, mount, unmount } from 'svelte'
import { afterEach, expect, test, vi } from 'vitest'
import SessionRow from '../src/components/list/SessionRow.svelte'
import { withDefaults } from '../src/lib/sessions/session-list.svelte'
import type { ListedSession } from '../src/lib/api/schema'

let mounted: object | null = null

afterEach(() => {
  if (mounted) void unmount(mounted)
  mounted = null
})

function show(state: Partial<ListedSession>): Element | null {
  const summary = withDefaults({
    id: 'a',
    title: 'Plums',
    source: { platform: 'web', chat_type: 'dm' },
    last_active_at: '2026-03-15T12:00:00Z',
    ...state,
  })
  const props = { summary, depth: 0, focused: false, onopen: vi.fn(), onactivate: vi.fn(), onselect: vi.fn() }
  mounted = mount(SessionRow, { target: document.body, props: { ...props, onmenu: vi.fn() } })
  flushSync()
  return document.querySelector('.session-row [role=img]')
}

test('a running turn turns in the list', () => {
  const mark = show({ running: true })

  expect(mark?.getAttribute('aria-label')).toBe('running')
  expect(mark?.classList.contains('paused')).toBe(false)
})

test('a turn without its process waits in the list', () => {
  const mark = show({ running: true, waiting: true })

  expect(mark?.getAttribute('aria-label')).toBe('Waiting to go on')
  expect(mark?.classList.contains('paused')).toBe(true)
})

test('a turn that asks people has an amber dot in the list', () => {
  const mark = show({ running: true, waits_for_people: true })

  expect(mark?.getAttribute('aria-label')).toBe('waiting for an answer')
  expect(mark?.className).toMatch(/^dot amber/)
})
