import { flushSync, mount, unmount } from 'svelte'
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest'
import Composer from '../src/components/session/Composer.svelte'
import type { BudgetInfo } from '../src/lib/api/schema'
import { budgetWarning } from '../src/lib/budgets'
import { loadLanguage } from '../src/lib/i18n.svelte'
import '../src/lib/page-messages'
import { preferences } from '../src/lib/ui/preferences.svelte'

const NOW = Date.parse('2026-03-02T12:00:00Z')
const budget = (used: number, more: Partial<BudgetInfo> = {}): BudgetInfo => ({
  scope: 'session:a',
  per: 'day',
  period: '2026-03-02',
  resets_at: '2026-03-03T00:00:00Z',
  limit_tokens: 10_000,
  limit_microusd: null,
  used_tokens: used,
  used_microusd: 0,
  reserved_tokens: 0,
  reserved_microusd: 0,
  percent: used / 100,
  is_used_up: used >= 10_000,
  warned: [],
  ...more,
})
const warn = (...budgets: BudgetInfo[]) => budgetWarning(budgets, NOW)

async function use(language: string) {
  preferences.language = language
  await loadLanguage()
}
afterAll(() => use('en'))

test('a budget is mentioned from half of it on, with its name, its use and its next beginning', async () => {
  await use('en')

  expect(warn(budget(4_999))).toBeNull()
  expect(warn()).toBeNull()
  const half = warn(budget(5_000))
  expect(half).toMatchObject({
    threshold: 50,
    claim: 'Budget of this session (per day): 50 % is used.',
    more: 0,
  })
  expect(half?.amount).toMatch(/^5\.0k of 10k tokens · Begins again: Mar [23], 2026/)
})

test('what is announced changes only when a threshold is passed', async () => {
  await use('en')
  const claims = [5_000, 7_999, 8_000, 9_999].map((used) => warn(budget(used))?.claim)

  expect(claims[0]).toBe(claims[1])
  expect(claims[2]).toBe(claims[3])
  expect(claims[2]).toContain('80 %')
})

test('a budget that is used up says until when messages are refused', async () => {
  await use('en')
  const gone = warn(budget(12_000))

  expect(gone?.threshold).toBe(100)
  expect(gone?.claim).toMatch(
    /^Budget of this session \(per day\) is used up\. Messages are refused until Mar [23], 2026/,
  )
  expect(gone?.amount).toBe('12k of 10k tokens')
  // What is rounded to 100 percent is not used up yet.
  expect(warn(budget(9_999.9, { percent: 100, is_used_up: false }))?.threshold).toBe(80)
})

test('of several budgets the one nearest to its limit is named, by the limit that is nearer', async () => {
  await use('en')
  const money = { scope: 'model:gpt-5', limit_microusd: 2_000_000, used_microusd: 1_900_000, percent: 95 }
  const found = warn(budget(6_000), budget(5_000, { ...money, per: 'month' }), budget(100, { scope: 'profile:main' }))

  expect(found).toMatchObject({ claim: 'Budget of the model gpt-5 (per month): 80 % is used.', more: 1 })
  expect(found?.amount).toMatch(/^\$1\.90 of \$2\.00 · /)
})

test('a budget that has begun again since is not mentioned', () => {
  expect(budgetWarning([budget(9_000)], Date.parse('2026-03-03T00:00:01Z'))).toBeNull()
})

test.each([
  ['en', 'Budget of the agent writer (per day) is used up. Messages are refused until '],
  ['de', 'Budget des Agenten writer (pro Tag) ist aufgebraucht. Nachrichten werden bis '],
  ['ru', 'Бюджет агента writer (в день) исчерпан. До '],
  ['zh-Hans', '代理 writer 的预算（每天）已用完。 在 '],
])('a budget is named in %s', async (language, text) => {
  await use(language)

  expect(warn(budget(10_000, { scope: 'agent:writer' }))?.claim.startsWith(text)).toBe(true)
})

let mounted: object | null = null
let asked: string[] = []
let found: BudgetInfo[] = []

beforeEach(async () => {
  await use('en')
  asked = []
  found = []
  vi.stubGlobal('fetch', (url: string, init: RequestInit = {}) => {
    if (url.includes('/budgets')) asked.push(url)
    if (init.method === 'POST') return Promise.resolve(Response.json({ detail: 'used up' }, { status: 403 }))
    const later = { resets_at: new Date(Date.now() + 3_600_000).toISOString() }
    const items = url.includes('/budgets') ? found.map((each) => ({ ...each, ...later })) : []
    return Promise.resolve(Response.json({ items, personas: [], csrf: 'x' }))
  })
})
afterEach(() => {
  if (mounted) void unmount(mounted)
  mounted = null
  vi.unstubAllGlobals()
})

const status = () => document.querySelector('.pane-footer [role=status]')

function open(sessionId: string | null) {
  const props = $state({
    sessionId,
    draft: null,
    running: false,
    spent: 0,
    chosen: { agent: null as string | null, model: null, persona: null },
  })
  mounted = mount(Composer, { target: document.body, props })
  return props
}

test('budgets are asked for when a session is opened and when a reply is finished, not while one types', async () => {
  found = [budget(4_000)]
  const props = open('a')
  await vi.waitFor(() => expect(asked).toEqual(['/api/v1/budgets?session_id=a']))
  await vi.waitFor(() => expect(status()?.textContent).toBe(''))
  const box = document.querySelector('textarea')!
  for (const text of ['h', 'he', 'hel']) {
    box.value = text
    box.dispatchEvent(new Event('input', { bubbles: true }))
    flushSync()
  }
  props.running = true
  flushSync()
  props.chosen = { ...props.chosen }
  flushSync()
  expect(asked).toHaveLength(1)

  found = [budget(8_500)]
  props.running = false
  await vi.waitFor(() => expect(status()?.textContent).toContain('80 % is used'))
  expect(asked).toHaveLength(2)
  props.chosen = { ...props.chosen, agent: 'coder' }
  await vi.waitFor(() => expect(asked).toHaveLength(3))
})

test('a turn that ended before it was seen to run asks for the budgets again', async () => {
  found = [budget(4_000)]
  const props = open('a')
  await vi.waitFor(() => expect(asked).toHaveLength(1))

  found = [budget(8_500)]
  props.spent = 4_500
  await vi.waitFor(() => expect(status()?.textContent).toContain('80 % is used'))
})

test('a message that is refused asks for the budgets again', async () => {
  open('a')
  await vi.waitFor(() => expect(asked).toHaveLength(1))
  found = [budget(10_000)]
  const box = document.querySelector('textarea')!
  box.value = 'hello'
  box.dispatchEvent(new Event('input', { bubbles: true }))
  flushSync()
  document.querySelector<HTMLButtonElement>('button[type=submit]')!.click()

  await vi.waitFor(() => expect(status()?.textContent).toContain('Messages are refused until'))
})

test('a new chat asks for no budgets', async () => {
  open(null)
  await vi.waitFor(() => expect(document.querySelector('textarea')).not.toBeNull())

  expect(asked).toEqual([])
  expect(document.querySelector('.budget')).toBeNull()
})
