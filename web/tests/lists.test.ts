import { expect, test } from 'vitest'
import { keyLabel } from '../src/lib/ui/commands'
import { parseRoute } from '../src/lib/ui/router.svelte'
import { buildRows, sorted } from '../src/lib/sessions/list-rows'
import { queryWords } from '../src/lib/text/search-words'
import { formatDuration, ageGroup, formatCost, shortAge, formatTokens, totalTokens } from '../src/lib/format'
import type { BudgetInfo, ListedSession, UsageTotals } from '../src/lib/api/schema'
import { budgetLimits } from '../src/lib/budgets'
import { chartBars, toCsv, sortUsage, sumUsage } from '../src/lib/usage'

const NOW = new Date(2026, 2, 15, 12).getTime()
const ago = (days: number) => new Date(NOW - days * 86_400_000).toISOString()
const summary = (id: string, days: number): ListedSession => ({ id, last_active_at: ago(days) }) as ListedSession

test('sessions are grouped by when something last happened', () => {
  expect([0, 1, 4, 20, 60].map((days) => ageGroup(ago(days), NOW))).toEqual([
    'today',
    'yesterday',
    'week',
    'month',
    '2026-01',
  ])
})

test('a pinned session stands above and not below again', () => {
  const rows = buildRows({
    pinned: [summary('a', 60)],
    items: [summary('b', 0), summary('a', 60)],
    closed: [],
    now: NOW,
  })

  expect(rows.map((row) => row.key)).toEqual(['g-pinned', 'pinned-a', 'g-today', 'today-b'])
})

test('a closed group keeps its heading and its count', () => {
  const rows = buildRows({ pinned: [], items: [summary('a', 0), summary('b', 0)], closed: ['today'], now: NOW })

  expect(rows).toEqual([{ kind: 'group', key: 'g-today', name: 'today', count: 2, more: false, closed: true }])
})

test('only the last group may have more than it counts', () => {
  const rows = buildRows({ pinned: [], items: [summary('a', 0), summary('b', 4)], closed: [], more: true, now: NOW })

  expect(rows.flatMap((row) => (row.kind === 'group' ? [[row.name, row.more]] : []))).toEqual([
    ['today', false],
    ['week', true],
  ])
})

test('a fork stands under what it came from, and alone where that is elsewhere', () => {
  const fork = (id: string, days: number, parent: string) => ({
    ...summary(id, days),
    lineage: 'fork' as const,
    parent_id: parent,
  })
  const rows = buildRows({
    pinned: [],
    items: [fork('b', 0, 'a'), summary('a', 0), fork('c', 4, 'a')],
    closed: [],
    now: NOW,
  })

  expect(rows.flatMap((row) => (row.kind === 'session' ? [[row.summary.id, row.depth]] : []))).toEqual([
    ['a', 0],
    ['b', 1],
    ['c', 0],
  ])
})

test('subagents are one line until someone wants to see them', () => {
  const parent = { ...summary('a', 0), subagents: 2 }
  const folded = buildRows({ pinned: [], items: [parent], closed: [], now: NOW })
  const open = buildRows({
    pinned: [],
    items: [parent],
    subagentsOf: { a: [summary('x', 0), summary('y', 0)] },
    closed: [],
    now: NOW,
  })

  expect(folded.map((row) => row.kind)).toEqual(['group', 'session', 'subagents'])
  expect(open.map((row) => row.kind)).toEqual(['group', 'session', 'subagents', 'session', 'session'])
})

test('projects stand above everything and can be folded', () => {
  const project = { id: 'p', name: 'P', colour: null, sessions: 3, created_at: ago(9) }
  const shown = { pinned: [summary('a', 0)], items: [], projects: [project], now: NOW }

  expect(buildRows({ ...shown, closed: [] }).map((row) => row.key)).toEqual([
    'g-projects',
    'p-p',
    'g-pinned',
    'pinned-a',
  ])
  expect(buildRows({ ...shown, closed: ['projects'] }).map((row) => row.key)).toEqual([
    'g-projects',
    'g-pinned',
    'pinned-a',
  ])
})

test('an address names a page, a session and a message', () => {
  expect(parseRoute(new URL('http://h/s/abc?q=x#m12'))).toMatchObject({ page: 'workbench', session: 'abc', seq: 12 })
  expect(parseRoute(new URL('http://h/usage/'))).toMatchObject({ page: 'usage', session: null })
  expect(parseRoute(new URL('http://h/nothing'))).toMatchObject({ page: 'unknown' })
})

test('only the words of a query are marked', () => {
  expect(queryWords('disk "no space" -mail source:web OR full*')).toEqual(['disk', 'no space', 'full'])
})

test('numbers are said shortly', () => {
  expect([
    shortAge(ago(3), NOW),
    formatDuration(62_000),
    formatTokens(12_400),
    formatCost(5_000),
    formatCost(1_250_000),
    formatCost(null),
  ]).toEqual(['3d', '1 m 2 s', '12k', '<$0.01', '$1.25', '–'])
})

const row = {
  group: '=1+1',
  calls: 1,
  input_tokens: 5,
  output_tokens: 5,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
  reasoning_tokens: 0,
  cost_microusd: null,
  cost_status: null,
  unknown_cost_calls: 1,
}

test('a spreadsheet finds no formula in a name', () => {
  expect(toCsv([row]).split('\r\n')[1]).toMatch(/^'=1\+1,1,5,5/)
})

test('days without use have their place in the chart', () => {
  const days = [
    { ...row, group: '2026-03-01' },
    { ...row, group: '2026-03-04' },
  ]

  expect(chartBars(days, 100, 10).map((bar) => bar.value)).toEqual([10, 0, 0, 10])
})

test('a list in another order is one group, sorted as the server sorts', () => {
  const named = (id: string, title: string | null, cost: number | null) =>
    ({ ...summary(id, 0), title, preview: 'm', cost_microusd: cost }) as ListedSession
  const items = [named('a', 'Pear', 5), named('b', 'apple', null), named('c', null, 9)]

  expect(sorted(items, 'title').map((each) => each.id)).toEqual(['b', 'c', 'a'])
  expect(sorted(items, 'cost').map((each) => each.id)).toEqual(['c', 'a', 'b'])
  const rows = buildRows({ pinned: [], items: sorted(items, 'title'), closed: [], now: NOW, order: 'title' })
  expect(rows.map((row) => row.key)).toEqual(['g-title', 'title-b', 'title-c', 'title-a'])
})

test('by beginning, sessions are grouped by when they began', () => {
  const items = [{ ...summary('a', 0), began_at: ago(40) }] as ListedSession[]

  expect(buildRows({ pinned: [], items, closed: [], now: NOW, order: 'created' })[0]).toMatchObject({
    name: ago(40).slice(0, 7),
  })
})

test('keys are named as they stand on keyboards', () => {
  expect(['mod+k', 'g ,', 'f2', 'shift+f3', 'delete', '#', '?'].map(keyLabel)).toEqual([
    'Ctrl K',
    'G ,',
    'F2',
    '⇧F3',
    'Del',
    '#',
    '?',
  ])
})

test('usage begins with the newest day, or with what cost most', () => {
  const row = (group: string, cost: number | null, input = 0) =>
    ({
      group,
      cost_microusd: cost,
      input_tokens: input,
      output_tokens: 0,
      cache_read_tokens: 0,
      cache_write_tokens: 0,
    }) as UsageTotals

  expect(sortUsage([row('2026-11-14', 1), row('2026-11-15', 2)], 'day').map((each) => each.group)).toEqual([
    '2026-11-15',
    '2026-11-14',
  ])
  expect(sortUsage([row('a', null, 5), row('b', 7), row('c', null, 9)], 'session').map((each) => each.group)).toEqual([
    'b',
    'c',
    'a',
  ])
})

test('an address that nobody could write names a session that is not there', () => {
  expect(parseRoute(new URL('http://localhost/s/%E0%A4%A')).session).toBe('%E0%A4%A')
})

test('cached tokens are part of every sum', () => {
  const used = {
    ...row,
    group: '2026-03-01',
    input_tokens: 1,
    output_tokens: 20,
    cache_read_tokens: 300,
    cache_write_tokens: 4000,
    reasoning_tokens: 5,
  }

  expect(totalTokens(used)).toBe(4321)
  expect(sumUsage([used, used])).toMatchObject({ tokens: 8642, cacheRead: 600, cacheWrite: 8000 })
  expect(chartBars([used], 100, 10)[0]?.value).toBe(4321)
})

test('a budget has a bar for each of its limits, which turns red when it is used up', () => {
  const budget = { used_tokens: 85, limit_tokens: 100, reserved_tokens: 5, used_microusd: 3, limit_microusd: null }
  const both = { ...budget, used_tokens: 0, used_microusd: 4, limit_microusd: 2, reserved_microusd: 0 }

  expect(budgetLimits(budget as BudgetInfo)).toEqual([
    { unit: 'tokens', used: 85, limit: 100, reserved: 5, percent: 85, level: 'high' },
  ])
  expect(budgetLimits(both as BudgetInfo).map((each) => [each.percent, each.level])).toEqual([
    [0, 'low'],
    [200, 'full'],
  ])
})
