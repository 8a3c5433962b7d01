/** Why turns wait or were interrupted. What the records of a session say is in `record-text.ts`. */
import { t } from '../i18n.svelte'

/** Why a turn was interrupted, in the language of the page if it is one of the usual reasons. */
export function reasonText(reason: string): string {
  if (reason === 'its process died') return t('record.died')
  if (reason === 'the server stopped') return t('record.stopped')
  if (reason === 'its questions were answered') return t('record.answered')
  if (reason === 'nobody answered its question in time') return t('record.unanswered')
  return reason
}
