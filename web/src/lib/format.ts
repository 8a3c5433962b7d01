/** Formats times, numbers and amounts, in the browser's time zone. */
import type { UsageTotals } from './api/schema'
import { t } from './i18n.svelte'
import { clock } from './clock.svelte'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

export function shortAge(at: string, now: number = clock.now): string {
  const age = Math.max(0, now - Date.parse(at))
  if (age < MINUTE) return t('age.now')
  if (age < HOUR) return t('age.minutes', { n: Math.floor(age / MINUTE) })
  if (age < DAY) return t('age.hours', { n: Math.floor(age / HOUR) })
  if (age < 30 * DAY) return t('age.days', { n: Math.floor(age / DAY) })
  if (age < 365 * DAY) return t('age.months', { n: Math.floor(age / (30 * DAY)) })
  return t('age.years', { n: Math.floor(age / (365 * DAY)) })
}

export function fullTime(at: string, language: string): string {
  return new Date(at).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' })
}

export function timeOfDay(at: string, language: string): string {
  return new Date(at).toLocaleTimeString(language, { hour: '2-digit', minute: '2-digit' })
}

export function dayKey(at: string | number): string {
  const day = new Date(at)
  return `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, '0')}-${String(day.getDate()).padStart(2, '0')}`
}

export function dayName(at: string, language: string): string {
  return new Date(at).toLocaleDateString(language, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' })
}

/** The age group of a time: `today`, `yesterday`, `week`, `month`, or its month as `2026-10`. */
export function ageGroup(at: string, now: number = clock.now): string {
  const midnight = new Date(now)
  midnight.setHours(0, 0, 0, 0)
  const then = Date.parse(at)
  // By calendar days, which may have 23 or 25 hours.
  const since = (days: number) => new Date(midnight).setDate(midnight.getDate() - days)
  if (then >= since(0)) return 'today'
  if (then >= since(1)) return 'yesterday'
  if (then >= since(7)) return 'week'
  if (then >= since(30)) return 'month'
  return dayKey(at).slice(0, 7)
}

export function formatDuration(ms: number): string {
  const seconds = Math.round(ms / 1000)
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  if (seconds < 1) return t('time.moment')
  if (seconds < 60) return t('time.seconds', { n: seconds })
  if (minutes < 60)
    return join(t('time.minutes', { n: minutes }), seconds % 60 ? t('time.seconds', { n: seconds % 60 }) : '')
  return join(t('time.hours', { n: hours }), minutes % 60 ? t('time.minutes', { n: minutes % 60 }) : '')
}

function join(large: string, small: string): string {
  return small ? `${large} ${small}` : large
}

export function hoursBetween(before: string, after: string): number | null {
  const hours = (Date.parse(after) - Date.parse(before)) / HOUR
  return hours >= 1 ? Math.floor(hours) : null
}

export function formatTokens(count: number): string {
  if (count < 1000) return String(count)
  if (count < 999_500) return `${(count / 1000).toFixed(count < 9_950 ? 1 : 0)}k`
  return `${(count / 1_000_000).toFixed(1)}M`
}

export function formatCost(microusd: number | null): string {
  if (microusd === null) return '–'
  const usd = microusd / 1_000_000
  if (usd === 0) return '$0'
  return usd < 0.01 ? '<$0.01' : `$${usd.toFixed(2)}`
}

export function formatBytes(count: number): string {
  if (count < 1000) return `${count} B`
  if (count < 999_950) return `${(count / 1000).toFixed(1)} kB`
  return count < 999_950_000 ? `${(count / 1_000_000).toFixed(1)} MB` : `${(count / 1_000_000_000).toFixed(1)} GB`
}

type TokenCounts = Pick<UsageTotals, 'input_tokens' | 'output_tokens' | 'cache_read_tokens' | 'cache_write_tokens'>

/** All tokens that a model read or wrote. Input excludes the cache; output includes reasoning. */
export function totalTokens(used: TokenCounts): number {
  return used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
}
