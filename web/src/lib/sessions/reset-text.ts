/** Describes when and why a chat starts a new session. */
import { t, type MessageKey } from '../i18n.svelte'
import { formatDuration } from '../format'
import type { BindingInfo } from '../api/schema'

export function policyText(binding: BindingInfo): string {
  const policy = binding.policy
  if (!policy || policy.mode === 'none') return t('reset.never')
  const rules = []
  if (policy.idle_minutes) rules.push(t('reset.idle', { time: formatDuration(policy.idle_minutes * 60_000) }))
  if (policy.daily_at) rules.push(t('reset.daily', { time: policy.daily_at }))
  return rules.join(' · ')
}

export function nextText(binding: BindingInfo, now: number): string {
  if (binding.held) return t('reset.held')
  if (!binding.resets_at) return ''
  const left = Date.parse(binding.resets_at) - now
  return left <= 60_000 ? t('reset.now') : t('reset.in', { time: formatDuration(Math.floor(left / 60_000) * 60_000) })
}

const KNOWN_REASONS = ['idle', 'daily', 'new', 'switch', 'closed', 'trash']

export function reasonText(reason: string): string {
  return KNOWN_REASONS.includes(reason) ? t(`reason.${reason}` as MessageKey) : reason
}
