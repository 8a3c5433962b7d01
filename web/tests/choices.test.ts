import { flushSync, mount, unmount } from 'svelte'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import ChoicePicker from '../src/components/session/ChoicePicker.svelte'
import Composer from '../src/components/session/Composer.svelte'
import ExchangeView from '../src/components/transcript/ExchangeView.svelte'
import type { AgentPage } from '../src/lib/api/schema'
import type { Entry } from '../src/lib/api/types'
import { buildExchanges } from '../src/lib/transcript/exchanges'
import {
  changesFor,
  choiceLabel,
  chosenModel,
  chosenTools,
  hasChoice,
  loadChoices,
  switchTool,
  type Choices,
} from '../src/lib/composer/choices'

const THERE: AgentPage = {
  items: [
    {
      name: 'writer',
      kind: 'model',
      model: 'openai:gpt-5',
      models: ['openai:gpt-5', 'openai:gpt-5-mini'],
      window: null,
      tools: [],
      default: true,
    },
    { name: 'coder', kind: 'command', model: null, models: [], window: null, tools: null, default: false },
  ],
  next: null,
  personas: [{ name: 'teacher', title: 'Teacher' }],
}
const NOTHING: Choices = { agent: null, model: null, persona: null }

test('the button names the model, or the agent that picks its own, and the persona', () => {
  expect(choiceLabel(THERE, NOTHING)).toBe('gpt-5')
  expect(choiceLabel(THERE, { ...NOTHING, model: 'openai:gpt-5-mini', persona: 'teacher' })).toBe(
    'gpt-5-mini · Teacher',
  )
  expect(choiceLabel(THERE, { ...NOTHING, agent: 'coder' })).toBe('coder')
  expect(choiceLabel(THERE, { ...NOTHING, model: 'recorded-only' })).toBe('gpt-5')
})

test('the own model of an agent is its default', () => {
  expect(chosenModel(THERE, { ...NOTHING, model: 'openai:gpt-5' })).toBe(null)
  expect(chosenModel(THERE, { ...NOTHING, model: 'openai:gpt-5-mini' })).toBe('openai:gpt-5-mini')
})

test('another agent does not keep the model and the tools', () => {
  expect(changesFor('agent', 'coder')).toEqual({ agent: 'coder', model: null, tools: null })
  expect(changesFor('persona', null)).toEqual({ persona: null })
})

test('one agent with one model and no tools leaves nothing to choose', () => {
  const only = { ...THERE.items[0]!, models: ['openai:gpt-5'] }
  const alone = (tools: string[] | null) => ({ ...THERE, items: [{ ...only, tools }], personas: [] })
  expect(hasChoice(THERE)).toBe(true)
  expect(hasChoice(alone([]))).toBe(false)
  expect(hasChoice(alone(['files_read']))).toBe(true)
  expect(hasChoice(alone(null))).toBe(true)
})

test('tools are chosen by patterns, as the server reads them', () => {
  const all = ['files_read', 'files_write', 'web.search', 'webXsearch']
  expect(chosenTools(all, null)).toEqual(all)
  expect(chosenTools(all, undefined)).toEqual(all)
  expect(chosenTools(all, [])).toEqual([])
  expect(chosenTools(all, ['files_*'])).toEqual(['files_read', 'files_write'])
  expect(chosenTools(all, ['web.search'])).toEqual(['web.search'])
  expect(chosenTools(all, ['files_[!r]*', 'web?search'])).toEqual(['files_write', 'web.search', 'webXsearch'])
  expect(chosenTools(all, ['[z-a]', 'Files_*'])).toEqual([])
})

test('one tool is switched off and on again', () => {
  const all = ['a', 'b', 'c']
  expect(switchTool(all, all, 'b')).toEqual(['a', 'c'])
  expect(switchTool(all, ['a'], 'a')).toEqual([])
  expect(switchTool(all, ['a', 'c'], 'b')).toBe(null)
})

let mounted: object | null = null
let there = THERE
/** The changes that were sent: method, path and body. */
const sent: [string, string, unknown][] = []

function answer(url: string, init: RequestInit = {}): Promise<Response> {
  if (init.method && init.method !== 'GET') sent.push([init.method, url, JSON.parse(String(init.body))])
  const page = url.includes('/budgets?') ? { items: [], next: null } : null
  return Promise.resolve(
    Response.json(url.endsWith('/agents') ? there : (page ?? { csrf_token: 'x', session_id: 'a' })),
  )
}

async function option(text: string): Promise<HTMLInputElement> {
  return vi.waitFor(() => {
    flushSync()
    const found = [...document.querySelectorAll('label')].find((each) => each.textContent.trim() === text)
    expect(found).toBeDefined()
    return found!.querySelector('input')!
  })
}

/** jsdom has none. */
class NoResizeObserver {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

beforeEach(() => {
  vi.stubGlobal('ResizeObserver', NoResizeObserver)
  vi.stubGlobal('fetch', answer)
  sent.length = 0
  there = THERE
  // What another test has loaded is not kept.
  void loadChoices(true)
})

afterEach(() => {
  if (mounted) void unmount(mounted)
  mounted = null
  vi.unstubAllGlobals()
})

test('the picker shows what is chosen and reports a change', async () => {
  const onchoose = vi.fn()
  const props = { chosen: { ...NOTHING, persona: 'teacher' }, isNew: false, onchoose }
  mounted = mount(ChoicePicker, { target: document.body, props })
  await vi.waitFor(() => {
    flushSync()
    expect(document.querySelector('.menu-button')?.textContent).toContain('gpt-5 · Teacher')
  })

  const options = [...document.querySelectorAll<HTMLInputElement>('input[type=radio]')]
  const named = (text: string) => options.find((each) => each.closest('label')?.textContent.trim() === text)!
  expect(options.filter((each) => each.checked).map((each) => each.closest('label')?.textContent.trim())).toEqual([
    'Default (writer)',
    'gpt-5',
    'Teacher',
  ])
  named('gpt-5-mini').click()
  named('None').click()
  named('coder').click()

  expect(onchoose.mock.calls.map(([changes]) => changes as object)).toEqual([
    { model: 'openai:gpt-5-mini' },
    { persona: null },
    { agent: 'coder', model: null, tools: null },
  ])
})

function show(tools: string[] | null, chosen: Choices, isNew = false) {
  there = { ...THERE, items: [{ ...THERE.items[0]!, tools }] }
  void loadChoices(true)
  const onchoose = vi.fn<(changes: Partial<Choices>) => void>()
  mounted = mount(ChoicePicker, { target: document.body, props: { chosen, isNew, onchoose } })
  return onchoose
}
const boxes = () => [...document.querySelectorAll<HTMLInputElement>('input[type=checkbox]')]
const checked = () => boxes().map((each) => each.checked)
/** jsdom has no popovers. */
function toggle(newState: string) {
  document.querySelector('.menu')!.dispatchEvent(Object.assign(new Event('toggle'), { newState }))
  flushSync()
}

test('tools are switched together, when the menu closes', async () => {
  const onchoose = show(['files_read', 'files_write', 'search'], NOTHING)
  await option('search')
  expect(checked()).toEqual([true, true, true, true])
  toggle('open')

  ;(await option('search')).click()
  ;(await option('files_read')).click()
  flushSync()
  expect(checked()).toEqual([false, false, true, false])
  expect(boxes()[0]!.indeterminate).toBe(true)
  expect(onchoose).not.toHaveBeenCalled()
  toggle('closed')
  expect(onchoose.mock.calls).toEqual([[{ tools: ['files_write'] }]])
  toggle('open')
  toggle('closed')
  expect(onchoose).toHaveBeenCalledOnce()
})

test('tools of a new session are switched at once: its first message may be sent while the menu is open', async () => {
  const onchoose = show(['files_read', 'search'], NOTHING, true)

  ;(await option('search')).click()
  flushSync()
  expect(onchoose.mock.calls).toEqual([[{ tools: ['files_read'] }]])
})

test('all tools are the default again, and the button counts those that are on', async () => {
  const onchoose = show(['files_read', 'files_write', 'search'], { ...NOTHING, tools: ['files_*'] })
  await option('search')
  expect(document.querySelector('.menu-button')?.textContent).toContain('gpt-5 · tools: 2 of 3')

  ;(await option('All')).click()
  toggle('closed')
  expect(onchoose.mock.calls).toEqual([[{ tools: null }]])
})

test('tools that are not known yet are asked for when the menu opens', async () => {
  show(null, NOTHING)
  await vi.waitFor(() => {
    flushSync()
    expect(document.querySelector('.menu')?.textContent).toContain('after the agent has answered')
  })
  there = { ...THERE, items: [{ ...THERE.items[0]!, tools: ['search'] }] }
  toggle('open')

  expect((await option('search')).checked).toBe(true)
})

test('what is chosen for a new chat is sent with its first message', async () => {
  const props = { sessionId: null, draft: null, chosen: NOTHING }
  mounted = mount(Composer, { target: document.body, props })
  ;(await option('gpt-5-mini')).click()
  ;(await option('Teacher')).click()
  const box = document.querySelector('textarea')!
  box.value = 'hello'
  box.dispatchEvent(new Event('input', { bubbles: true }))
  flushSync()
  document.querySelector<HTMLButtonElement>('button[type=submit]')!.click()

  const body = { text: 'hello', run: true, model: 'openai:gpt-5-mini', persona: 'teacher' }
  await vi.waitFor(() => expect(sent).toEqual([['POST', '/api/v1/sessions', body]]))
})

test('what is chosen in a session is changed at once', async () => {
  const onqueue = vi.fn()
  const props = { sessionId: 'a', draft: null, chosen: NOTHING, onqueue }
  mounted = mount(Composer, { target: document.body, props })
  ;(await option('coder')).click()

  const body = { agent: 'coder', model: null, tools: null }
  await vi.waitFor(() => expect(sent).toEqual([['PATCH', '/api/v1/sessions/a', body]]))
  await vi.waitFor(() => expect(onqueue).toHaveBeenCalledOnce())
})

test('a record of a choice is one quiet line with its time', async () => {
  const record = { kind: 'settings', changed: { model: 'm' }, before: { model: null }, by: 'Anna' }
  const entry = {
    kind: 'message',
    role: 'system',
    seq: 3,
    at: '2026-03-15T12:00:00Z',
    text: 'Anna chose the model m.',
    parts: [{ type: 'text', text: 'Anna chose the model m.' }],
    extra: { record },
  } as unknown as Entry
  const [exchange] = buildExchanges([entry])
  const messageActions = { fork: vi.fn(), edit: vi.fn(), quote: vi.fn(), pin: vi.fn() }
  const shown = { sessionId: 'a', target: null, highlights: [], allExpanded: null, messageActions, canWrite: true }
  mounted = mount(ExchangeView, { target: document.body, props: { exchange: exchange!, ...shown } })

  await vi.waitFor(() =>
    expect(document.querySelector('#m3.record')?.textContent).toMatch(/^Anna chose the model m · /),
  )
  expect(document.querySelector('#m3 time')?.getAttribute('datetime')).toBe('2026-03-15T12:00:00Z')
  expect(document.querySelector('.message')).toBe(null)
})
