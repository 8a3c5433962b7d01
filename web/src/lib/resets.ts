/** When a chat begins anew, as people say it. */
import { n, t, type Key } from './i18n.svelte'
import { duration } from './time'
import type { Binding } from './types'

export function policyText(binding: Binding): string {
  const policy = binding.policy
  if (!policy || policy.mode === 'none') return t('reset.never')
  const said = []
  if (policy.idle_minutes) said.push(t('reset.idle', { time: duration(policy.idle_minutes * 60_000) }))
  if (policy.daily_at) said.push(t('reset.daily', { time: policy.daily_at }))
  return said.join(' · ')
}

export function nextText(binding: Binding, now: number): string {
  if (binding.held) return t('reset.held')
  if (!binding.resets_at) return ''
  const left = Date.parse(binding.resets_at) - now
  return left <= 60_000 ? t('reset.now') : t('reset.in', { time: duration(Math.floor(left / 60_000) * 60_000) })
}

const KNOWN = ['idle', 'daily', 'new', 'switch', 'closed', 'trash']

export function reasonText(reason: string): string {
  return KNOWN.includes(reason) ? t(`reason.${reason}` as Key) : reason
}

export function countText(count: number): string {
  return n('live.chats', count)
}
