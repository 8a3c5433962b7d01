/** The entries that record what happened to a session itself. What they say is in `record-text.ts`. */
import { t } from '../i18n.svelte'
import type { Entry } from '../api/types'

export interface SessionRecord {
  kind: string
  reason?: string
  seq?: number
  /** What was chosen for the session, and what was before; null is the default. */
  changed?: Record<string, unknown>
  before?: Record<string, unknown>
  by?: string | null
  /** Whether nobody chose this: what was chosen before is no longer there. */
  is_missing?: boolean
  /** The agent that answers then. */
  agent?: string | null
  /** The budget that refused a message; absent if something else did, and in older records. */
  budget?: { scope: string; per: string; resets_at: string }
}

/** The record in an entry; null for a message. */
export function recordOf(entry: Entry): SessionRecord | null {
  const record = entry.role === 'system' ? (entry.extra?.['record'] as SessionRecord | undefined) : undefined
  return record && typeof record.kind === 'string' ? record : null
}

/** Why a turn was interrupted, in the language of the page if it is one of the usual reasons. */
export function reasonText(reason: string): string {
  if (reason === 'its process died') return t('record.died')
  if (reason === 'the server stopped') return t('record.stopped')
  return reason
}
