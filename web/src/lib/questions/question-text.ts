/** A question, its arguments and its outcome in words. */
import type { QuestionInfo } from '../api/schema'
import type { Json } from '../api/types'
import { formatDuration } from '../format'
import { t } from '../i18n.svelte'

const MINUTE = 60_000
/** How the server names the workbench, and whoever is logged in there. */
const OWNER = 'The owner'
const WORKBENCH = 'the workbench'
/** Steers, hides or shows nothing: control characters, text direction, characters that have no width or are blank. */
const HIDDEN =
  /\p{Cc}|\p{Cf}|\p{Cs}|\p{Zl}|\p{Zp}|\p{Variation_Selector}|\u034f|\u115f|\u1160|\u17b4|\u17b5|\u2065|\u2800|\u3164|\uffa0|[\ufff0-\ufff8]|\u{1d159}/gu
/** Letters of some scripts, and emoji, need these. */
const JOINERS = '\u200c\u200d\ufe0f'
const RULES = {
  'the tool may change something, and this is a group': 'question.ruleGroup',
  'the tool may change something, and this person is not an owner': 'question.ruleStranger',
} as const

/** A text in which every character can be seen, as the server writes arguments. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => (char === '\n' || JOINERS.includes(char) ? char : escaped(char)))
}

/** A name in which every character can be seen, on one line. */
export function visibleName(text: string): string {
  return text.replace(HIDDEN, escaped)
}

function escaped(char: string): string {
  return Array.from({ length: char.length }, (_, at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`).join(
    '',
  )
}

/** What is asked, in one sentence. */
export function questionTitle({ kind, tool, text }: Pick<QuestionInfo, 'kind' | 'tool' | 'text'>): string {
  return kind === 'approval' ? t('question.mayRun', { tool: visibleName(tool ?? '') }) : visible(text)
}

/** Why a call must be approved, in the language of the page if it is one of the usual reasons. */
export function ruleText(rule: string): string {
  return rule in RULES ? t(RULES[rule as keyof typeof RULES]) : visible(rule)
}

/** Where the turn was asked for. */
export function whereText(where: string): string {
  return where === WORKBENCH ? t('question.workbench') : visible(where)
}

/** How long the question still waits, and what happens then. */
export function timeLeft({ expires_at, on_expiry }: QuestionInfo, now: number): string {
  const left = Date.parse(expires_at) - now
  if (left <= 0) return t('question.over')
  const time = formatDuration(Math.max(1, Math.round(left / MINUTE)) * MINUTE)
  return t(on_expiry === 'end' ? 'question.leftEnd' : 'question.leftDeny', { time })
}

/** Who answered. */
export function whoText(by: string | null | undefined): string {
  return by === OWNER ? t('question.owner') : by ? visibleName(by) : t('question.nobody')
}

interface Outcome {
  state: string
  kind: string
  decision?: string | undefined
  by?: string | null | undefined
  text?: string | undefined
  isChanged?: boolean
  always?: string | null | undefined
}

/** What became of a question, in one line; empty while it is open. */
export function outcomeText({ state, kind, decision, by, text, isChanged, always }: Outcome): string {
  if (state === 'expired') return t('question.expired')
  if (state === 'withdrawn') return t('question.withdrawn')
  if (state !== 'answered') return ''
  const who = whoText(by)
  const answer = visible(text ?? '')
  if (decision === 'deny')
    return answer ? t('question.deniedBecause', { who, reason: answer }) : t('question.denied', { who })
  if (kind !== 'approval') return answer ? t('question.answered', { who, answer }) : t('question.answeredForm', { who })
  const approved = t(isChanged ? 'question.approvedChanged' : 'question.approved', { who })
  if (!always) return approved
  return `${approved}; ${t(always === 'session' ? 'question.thenSession' : 'question.thenPerson')}`
}

/** What became of a question, in one line; empty while it is open. */
export function questionOutcome({ state, kind, answer }: QuestionInfo): string {
  return outcomeText({
    state,
    kind,
    decision: answer?.decision,
    by: answer?.by,
    text: answer?.text,
    isChanged: !!answer?.arguments,
    always: answer?.always,
  })
}

/** Arguments as JSON to edit; what cannot be seen is escaped. */
export function editableJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(HIDDEN, (char) => (char === '\n' ? char : escaped(char)))
}

/** Whether a number is too large to be read exactly. */
export function hasInexactNumber(value: unknown): boolean {
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value)
  return typeof value === 'object' && value !== null && Object.values(value).some(hasInexactNumber)
}

/** The arguments that were typed, or what is wrong with them. */
export function parseArguments(text: string): { value: Record<string, Json> } | { error: string } {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return { error: t('question.badJson', { reason: error instanceof Error ? error.message : String(error) }) }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { error: t('question.notObject') }
  if (hasInexactNumber(value)) return { error: t('question.bigNumber') }
  return { value: value as Record<string, Json> }
}
