/** What the entries say that record what happened to a session itself. */
import { t } from '../i18n.svelte'
import type { Entry } from '../api/types'

interface SessionRecord {
  kind: string
  reason?: string
  seq?: number
}

/** The record in an entry; null for a message. */
export function recordOf(entry: Entry): SessionRecord | null {
  const record = entry.role === 'system' ? (entry.extra?.['record'] as SessionRecord | undefined) : undefined
  return record && typeof record.kind === 'string' ? record : null
}

/** The record in one sentence. What this version does not know is shown as the server wrote it. */
export function recordText(entry: Entry): string {
  const record = recordOf(entry)
  switch (record?.kind) {
    case 'resumed':
      return t('record.resumed', { reason: reasonText(record.reason ?? '') })
    case 'pin':
      return t('record.pin', { seq: record.seq ?? '' })
    case 'unpin':
      return t('record.unpin', { seq: record.seq ?? '' })
    default:
      return entry.text ?? ''
  }
}

/** Why a turn was interrupted, in the language of the page if it is one of the usual reasons. */
export function reasonText(reason: string): string {
  if (reason === 'its process died') return t('record.died')
  if (reason === 'the server stopped') return t('record.stopped')
  return reason
}
