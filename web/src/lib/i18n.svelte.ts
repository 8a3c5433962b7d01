/** Translations. English is part of the bundle; other languages are loaded when they are chosen. */
import english from '../locales/en.json'
import { preferences } from './ui/preferences.svelte'

export type MessageKey = keyof typeof english
type Messages = Partial<Record<MessageKey, string>>

export const LANGUAGES = { auto: 'System', en: 'English', de: 'Deutsch', ru: 'Русский', 'zh-Hans': '简体中文' } as const

const LOADERS: Record<string, () => Promise<{ default: Messages }>> = {
  de: () => import('../locales/de.json'),
  ru: () => import('../locales/ru.json'),
  'zh-Hans': () => import('../locales/zh-Hans.json'),
}

let messages = $state.raw<Messages>(english)
let current = $state('en')

export function language(): string {
  return current
}

export function resolveLanguage(preference: string, offered: readonly string[]): string {
  if (preference !== 'auto') return preference
  for (const each of offered) {
    if (each.toLowerCase().startsWith('zh')) return 'zh-Hans'
    const short = each.split('-')[0] ?? 'en'
    if (short === 'en' || short in LOADERS) return short
  }
  return 'en'
}

export async function loadLanguage(): Promise<void> {
  const name = resolveLanguage(preferences.language, navigator.languages)
  const load = LOADERS[name]
  try {
    messages = load ? { ...english, ...(await load()).default } : english
    current = load ? name : 'en'
  } catch {
    messages = english
    current = 'en'
  }
  document.documentElement.lang = current
}

type Values = Record<string, string | number>

export function t(key: MessageKey, values: Values = {}): string {
  return fill(messages[key] ?? english[key] ?? key, values)
}

/** A message that depends on a number: `key_one`, `key_few`, `key_many`, `key_other`. */
export function n(key: string, count: number, values: Values = {}): string {
  const form = new Intl.PluralRules(current).select(count)
  const found = messages[`${key}_${form}` as MessageKey] ?? messages[`${key}_other` as MessageKey] ?? key
  return fill(found, { n: count.toLocaleString(current), ...values })
}

export function fill(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder))
}
