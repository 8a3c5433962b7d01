import { expect, test } from 'vitest'
import { shown } from '../src/lib/commands.svelte'
import { parse } from '../src/lib/router.svelte'
import { rowsOf, sorted } from '../src/lib/rows'
import { queryWords } from '../src/lib/saying'
import { duration, groupOf, money, shortAge, tokens } from '../src/lib/time'
import type { Head, UsageRow } from '../src/lib/types'
import { allTokens } from '../src/lib/tokens'
import { bars, csv, ordered, total } from '../src/lib/usage'

const NOW = new Date(2026, 2, 15, 12).getTime()
const ago = (days: number) => new Date(NOW - days * 86_400_000).toISOString()
const head = (id: string, days: number): Head => ({ id, last_active_at: ago(days) }) as Head

test('sessions are grouped by when something last happened', () => {
  expect([0, 1, 4, 20, 60].map((days) => groupOf(ago(days), NOW))).toEqual([
    'today',
    'yesterday',
    'week',
    'month',
    '2026-01',
  ])
})

test('a pinned session stands above and not below again', () => {
  const rows = rowsOf({ pinned: [head('a', 60)], items: [head('b', 0), head('a', 60)], closed: [], now: NOW })

  expect(rows.map((row) => row.key)).toEqual(['g-pinned', 'pinned-a', 'g-today', 'today-b'])
})

test('a closed group keeps its heading and its count', () => {
  const rows = rowsOf({ pinned: [], items: [head('a', 0), head('b', 0)], closed: ['today'], now: NOW })

  expect(rows).toEqual([{ kind: 'group', key: 'g-today', name: 'today', count: 2, more: false, closed: true }])
})

test('only the last group may have more than it counts', () => {
  const rows = rowsOf({ pinned: [], items: [head('a', 0), head('b', 4)], closed: [], more: true, now: NOW })

  expect(rows.flatMap((row) => (row.kind === 'group' ? [[row.name, row.more]] : []))).toEqual([
    ['today', false],
    ['week', true],
  ])
})

test('a fork stands under what it came from, and alone where that is elsewhere', () => {
  const fork = (id: string, days: number, parent: string) => ({ ...head(id, days), lineage: 'fork', parent_id: parent })
  const rows = rowsOf({ pinned: [], items: [fork('b', 0, 'a'), head('a', 0), fork('c', 4, 'a')], closed: [], now: NOW })

  expect(rows.flatMap((row) => (row.kind === 'head' ? [[row.head.id, row.depth]] : []))).toEqual([
    ['a', 0],
    ['b', 1],
    ['c', 0],
  ])
})

test('subagents are one line until someone wants to see them', () => {
  const parent = { ...head('a', 0), subagents: 2 }
  const folded = rowsOf({ pinned: [], items: [parent], closed: [], now: NOW })
  const open = rowsOf({ pinned: [], items: [parent], kids: { a: [head('x', 0), head('y', 0)] }, closed: [], now: NOW })

  expect(folded.map((row) => row.kind)).toEqual(['group', 'head', 'subagents'])
  expect(open.map((row) => row.kind)).toEqual(['group', 'head', 'subagents', 'head', 'head'])
})

test('projects stand above everything and can be folded', () => {
  const project = { id: 'p', name: 'P', colour: null, sessions: 3 }
  const shown = { pinned: [head('a', 0)], items: [], projects: [project], now: NOW }

  expect(rowsOf({ ...shown, closed: [] }).map((row) => row.key)).toEqual(['g-projects', 'p-p', 'g-pinned', 'pinned-a'])
  expect(rowsOf({ ...shown, closed: ['projects'] }).map((row) => row.key)).toEqual([
    'g-projects',
    'g-pinned',
    'pinned-a',
  ])
})

test('an address names a page, a session and a message', () => {
  expect(parse(new URL('http://h/s/abc?q=x#m12'))).toMatchObject({ page: 'workbench', session: 'abc', seq: 12 })
  expect(parse(new URL('http://h/usage/'))).toMatchObject({ page: 'usage', session: null })
  expect(parse(new URL('http://h/nothing'))).toMatchObject({ page: 'unknown' })
})

test('only the words of a query are marked', () => {
  expect(queryWords('disk "no space" -mail source:web OR full*')).toEqual(['disk', 'no space', 'full'])
})

test('numbers are said shortly', () => {
  expect([
    shortAge(ago(3), NOW),
    duration(62_000),
    tokens(12_400),
    money(5_000),
    money(1_250_000),
    money(null),
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
  expect(csv([row]).split('\r\n')[1]).toMatch(/^'=1\+1,1,5,5/)
})

test('days without use have their place in the chart', () => {
  const days = [
    { ...row, group: '2026-03-01' },
    { ...row, group: '2026-03-04' },
  ]

  expect(bars(days, 100, 10).map((bar) => bar.value)).toEqual([10, 0, 0, 10])
})

test('a list in another order is one group, sorted as the server sorts', () => {
  const named = (id: string, title: string | null, cost: number | null) =>
    ({ ...head(id, 0), title, preview: 'm', cost_microusd: cost }) as Head
  const items = [named('a', 'Pear', 5), named('b', 'apple', null), named('c', null, 9)]

  expect(sorted(items, 'title').map((each) => each.id)).toEqual(['b', 'c', 'a'])
  expect(sorted(items, 'cost').map((each) => each.id)).toEqual(['c', 'a', 'b'])
  const rows = rowsOf({ pinned: [], items: sorted(items, 'title'), closed: [], now: NOW, order: 'title' })
  expect(rows.map((row) => row.key)).toEqual(['g-title', 'title-b', 'title-c', 'title-a'])
})

test('by beginning, sessions are grouped by when they began', () => {
  const items = [{ ...head('a', 0), began_at: ago(40) }] as Head[]

  expect(rowsOf({ pinned: [], items, closed: [], now: NOW, order: 'created' })[0]).toMatchObject({
    name: ago(40).slice(0, 7),
  })
})

test('keys are named as they stand on keyboards', () => {
  expect(['mod+k', 'g ,', 'f2', 'shift+f3', 'delete', '#', '?'].map(shown)).toEqual([
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
    }) as UsageRow

  expect(ordered([row('2026-11-14', 1), row('2026-11-15', 2)], 'day').map((each) => each.group)).toEqual([
    '2026-11-15',
    '2026-11-14',
  ])
  expect(ordered([row('a', null, 5), row('b', 7), row('c', null, 9)], 'session').map((each) => each.group)).toEqual([
    'b',
    'c',
    'a',
  ])
})

test('an address that nobody could write names a session that is not there', () => {
  expect(parse(new URL('http://localhost/s/%E0%A4%A')).session).toBe('%E0%A4%A')
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

  expect(allTokens(used)).toBe(4321)
  expect(total([used, used])).toMatchObject({ tokens: 8642, cacheRead: 600, cacheWrite: 8000 })
  expect(bars([used], 100, 10)[0]?.value).toBe(4321)
})
