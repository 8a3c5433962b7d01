/** What is used of the budgets, and how that is said. Its words are those of pages that are loaded on demand. */
import type { BudgetInfo } from './api/schema'
import { formatCost, formatTokens, fullTime } from './format'
import { language, t, type MessageKey } from './i18n.svelte'

/** At these percentages people are told, as in chats. */
const THRESHOLDS = [100, 80, 50]

export interface BudgetLimit {
  unit: 'tokens' | 'money'
  used: number
  limit: number
  reserved: number
  percent: number
  level: 'low' | 'high' | 'full'
}

/** The limits that a budget has: in tokens, in money, or both. */
export function budgetLimits(budget: BudgetInfo): BudgetLimit[] {
  const limit = (unit: BudgetLimit['unit'], used: number, most: number | null, reserved: number): BudgetLimit[] => {
    if (most === null) return []
    const percent = (100 * used) / most
    return [
      { unit, used, limit: most, reserved, percent, level: percent >= 100 ? 'full' : percent >= 80 ? 'high' : 'low' },
    ]
  }
  return [
    ...limit('tokens', budget.used_tokens, budget.limit_tokens, budget.reserved_tokens),
    ...limit('money', budget.used_microusd, budget.limit_microusd, budget.reserved_microusd),
  ]
}

/** The budget of a session, an agent and so on, by name, as seen from the open session. */
export function budgetName(kind: string, name: string): string {
  return kind in HERE ? t(HERE[kind as keyof typeof HERE], { name }) : `${kind} ${name}`
}
const HERE = {
  agent: 'budget.here.agent',
  channel: 'budget.here.channel',
  model: 'budget.here.model',
  person: 'budget.here.person',
  profile: 'budget.here.profile',
  session: 'budget.here.session',
} as const

/** `pro Tag`, `pro Monat` */
export function perPeriod(per: string): string {
  return t(`budget.per.${per}` as MessageKey)
}

export interface BudgetWarning {
  /** The highest threshold that was passed: 50, 80 or 100. */
  threshold: number
  /** What changes only when another threshold is passed. */
  claim: string
  /** How much is used of how much, and when it begins again. */
  amount: string
  /** How many other budgets have passed a threshold. */
  more: number
}

/** The warning of the budget that is nearest to its limit; null if less than half of each is used. */
export function budgetWarning(budgets: readonly BudgetInfo[], now: number): BudgetWarning | null {
  const passed = budgets
    .filter((each) => each.percent >= 50 && Date.parse(each.resets_at) > now)
    .sort((a, b) => b.percent - a.percent)
  const first = passed[0]
  const limit = first && budgetLimits(first).sort((a, b) => b.percent - a.percent)[0]
  if (!first || !limit) return null
  const threshold = first.is_used_up ? 100 : (THRESHOLDS.find((each) => first.percent >= each && each < 100) ?? 50)
  const [kind = '', ...rest] = first.scope.split(':')
  const values = { name: budgetName(kind, rest.join(':')), per: perPeriod(first.per), threshold }
  const at = fullTime(first.resets_at, language())
  const show = limit.unit === 'tokens' ? formatTokens : formatCost
  const amount = t(limit.unit === 'tokens' ? 'budget.ofTokens' : 'budget.ofMoney', {
    used: show(limit.used),
    limit: show(limit.limit),
  })
  const isUsedUp = threshold === 100
  return {
    threshold,
    claim: isUsedUp ? `${t('budget.gone', values)} ${t('budget.refused', { at })}` : t('budget.reached', values),
    amount: isUsedUp ? amount : `${amount} · ${t('budget.resets', { at })}`,
    more: passed.length - 1,
  }
}
