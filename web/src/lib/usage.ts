import { totalTokens } from './format'
import type { UsageTotals } from './api/schema'

const COLUMNS = [
  'group',
  'calls',
  'input_tokens',
  'output_tokens',
  'cache_read_tokens',
  'cache_write_tokens',
  'reasoning_tokens',
  'cost_microusd',
  'unknown_cost_calls',
] as const

export interface Total {
  calls: number
  tokens: number
  input: number
  output: number
  cacheRead: number
  cacheWrite: number
  cost: number
  unknown: number
}

export function sumUsage(rows: UsageTotals[]): Total {
  const sum = { calls: 0, tokens: 0, input: 0, output: 0, cacheRead: 0, cacheWrite: 0, cost: 0, unknown: 0 }
  for (const row of rows) {
    sum.calls += row.calls
    sum.tokens += totalTokens(row)
    sum.input += row.input_tokens
    sum.output += row.output_tokens
    sum.cacheRead += row.cache_read_tokens
    sum.cacheWrite += row.cache_write_tokens
    sum.cost += row.cost_microusd ?? 0
    sum.unknown += row.unknown_cost_calls
  }
  return sum
}

/** Sort days newest first, everything else by cost, highest first. */
export function sortUsage(rows: readonly UsageTotals[], by: string): UsageTotals[] {
  if (by === 'day') return [...rows].sort((a, b) => ((a.group ?? '') < (b.group ?? '') ? 1 : -1))
  return [...rows].sort((a, b) => (b.cost_microusd ?? 0) - (a.cost_microusd ?? 0) || totalTokens(b) - totalTokens(a))
}

/** A CSV table. A cell that a spreadsheet would read as a formula becomes plain text. */
export function toCsv(rows: UsageTotals[]): string {
  const cell = (value: unknown): string => {
    const text = String(value ?? '')
    const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+$/.test(text) ? `'${text}` : text
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe
  }
  return (
    [COLUMNS.join(','), ...rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(','))].join('\r\n') + '\r\n'
  )
}

export interface Bar {
  x: number
  y: number
  width: number
  height: number
  label: string
  value: number
}

/** One bar per day in order, including days without usage. */
export function chartBars(rows: UsageTotals[], width: number, height: number, most = 366): Bar[] {
  const days = rows
    .filter((row) => row.group && /^\d{4}-\d\d-\d\d$/.test(row.group))
    .sort((a, b) => ((a.group ?? '') < (b.group ?? '') ? -1 : 1))
  const end = days.at(-1)?.group
  if (!end) return []
  const by = new Map(days.map((row) => [row.group, totalTokens(row)]))
  const first = Date.parse(days[0]?.group ?? end)
  const count = Math.min(most, Math.round((Date.parse(end) - first) / 86_400_000) + 1)
  const names = Array.from({ length: count }, (_, index) =>
    new Date(Date.parse(end) - (count - 1 - index) * 86_400_000).toISOString().slice(0, 10),
  )
  const top = Math.max(1, ...names.map((name) => by.get(name) ?? 0))
  const step = width / count
  return names.map((label, index) => {
    const value = by.get(label) ?? 0
    const tall = (value / top) * height
    return { x: index * step + step * 0.1, y: height - tall, width: step * 0.8, height: tall, label, value }
  })
}
