/** What the records of a session say, in the language of the page. Loaded with the first record that is shown. */
import { budgetName, perPeriod } from '../budgets'
import { fullTime } from '../format'
import { language, t } from '../i18n.svelte'
import { outcomeText, visible, visibleName } from '../questions/question-text'
import type { Entry } from '../api/types'
import { recordOf, type SessionRecord } from './exchanges'
import { reasonText } from './records'

const CHOICES = ['agent', 'model', 'persona', 'tools'] as const
type Choice = (typeof CHOICES)[number]
/** Who is logged in at the workbench. */
const OWNER = 'owner'
/** How the sentences end with which earlier versions recorded that something is no longer there. */
const MISSING = [' instead.', ' without one.']

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
    case 'refused':
      return record.budget ? refusalText(record.budget) : (record.reason ?? entry.text ?? '')
    case 'question':
      return questionText(record) || (entry.text ?? '')
    case 'settings':
      return (record.is_missing ? missingText(record) : choiceText(record, entry)) ?? entry.text ?? ''
    default:
      return entry.text ?? ''
  }
}

/** The message that a record of a refusal keeps; empty for any other record. */
export function refusedMessage(entry: Entry): string {
  const record = recordOf(entry)
  const text = entry.text ?? ''
  if (record?.kind !== 'refused' || !record.reason || !text.startsWith(record.reason)) return ''
  return text.slice(record.reason.length).trim()
}

/** What was asked, or what became of it; empty if it is not understood. */
function questionText({ question, state, text, tool, decision, answer, by }: SessionRecord): string {
  if (state === 'open')
    return tool ? t('record.asked', { tool: visibleName(tool) }) : t('record.askedText', { text: visible(text ?? '') })
  const outcome = outcomeText({ state: state ?? '', kind: question ?? '', decision, by, text: answer })
  const what = tool ? visibleName(tool) : visible(text ?? '')
  return outcome && t('record.outcome', { outcome, what })
}

function refusalText(budget: NonNullable<SessionRecord['budget']>): string {
  const [kind = '', ...name] = budget.scope.split(':')
  const values = { name: budgetName(kind, name.join(':')), per: perPeriod(budget.per) }
  const at = fullTime(budget.resets_at, language())
  return `${t('record.refused')} ${t('budget.gone', values)} ${t('budget.resets', { at })}`
}

function choiceText(record: SessionRecord, entry: Entry): string | null {
  const chosen = Object.entries(record.changed ?? {})
  const named = CHOICES.flatMap((name) =>
    chosen.filter(([key]) => key === name).map(([, value]) => describe(name, value)),
  )
  if (!chosen.length || named.length < chosen.length || named.includes(null)) return null
  const what = new Intl.ListFormat(language(), { type: 'conjunction' }).format(named.filter((each) => each !== null))
  const who = entry.person?.id === OWNER ? t('record.owner') : record.by
  if (who) return t('record.chose', { who, what })
  return MISSING.some((end) => entry.text?.endsWith(end)) ? null : t('record.chosen', { what })
}

/** A choice in words: «the model gpt-5», «no persona»; null if it is not understood. */
function describe(name: Choice, value: unknown): string | null {
  if (value === null) return t(`record.no.${name}`)
  if (name === 'tools') {
    if (!Array.isArray(value)) return null
    return value.length ? t('record.tools', { name: value.join(', ') }) : t('record.noTools')
  }
  return typeof value === 'string' ? t(`record.${name}`, { name: value }) : null
}

function missingText({ before, agent }: SessionRecord): string | null {
  const [name, ...others] = Object.keys(before ?? {})
  const values = { name: String(before?.[name ?? ''] ?? ''), agent: agent ?? '' }
  if (others.length || !values.name) return null
  if (name === 'persona') return t('record.missing.persona', values)
  return (name === 'agent' || name === 'model') && agent ? t(`record.missing.${name}`, values) : null
}
