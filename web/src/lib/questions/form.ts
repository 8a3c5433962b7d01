/** The fields of a question that asks for several values, and the values that were typed. */
import { t } from '../i18n.svelte'
import { visible } from './question-text'

type Value = string | number | boolean

export interface FormField {
  name: string
  label: string
  description: string
  type: 'string' | 'number' | 'integer' | 'boolean'
  required: boolean
  /** What can be chosen; null if it is typed. */
  choices: { value: Value; label: string }[] | null
  /** What is typed at first: the text of a field, the number of a choice, or whether a box is checked. */
  initial: string | boolean
}

interface Property {
  type?: unknown
  title?: unknown
  description?: unknown
  enum?: unknown
  enumNames?: unknown
  default?: unknown
}

/** The fields that a JSON schema describes. */
export function formFields(schema: Record<string, unknown> | null): FormField[] {
  const properties = (schema?.['properties'] ?? {}) as Record<string, Property>
  const required = (schema?.['required'] ?? []) as string[]
  return Object.entries(properties).map(([name, property]) => {
    const type = (['number', 'integer', 'boolean'] as const).find((each) => each === property.type) ?? 'string'
    const choices = choicesOf(property)
    const given = property.default
    const chosen = choices ? choices.findIndex((each) => each.value === given) : -1
    return {
      name,
      label: visible(typeof property.title === 'string' && property.title ? property.title : name),
      description: typeof property.description === 'string' ? visible(property.description) : '',
      type,
      required: required.includes(name),
      choices,
      initial: choices
        ? chosen < 0
          ? ''
          : String(chosen)
        : type === 'boolean'
          ? given === true
          : given === undefined || given === null
            ? ''
            : String(given as Value),
    }
  })
}

function choicesOf(property: Property): FormField['choices'] {
  if (!Array.isArray(property.enum)) return null
  const names = Array.isArray(property.enumNames) ? (property.enumNames as unknown[]) : []
  return (property.enum as Value[]).map((value, at) => ({ value, label: visible(String(names[at] ?? value)) }))
}

/** The values of a form, or what is wrong, by the name of the field. An empty field that is not required is left out. */
export function formValues(
  fields: readonly FormField[],
  typed: Readonly<Record<string, string | boolean>>,
): { values: Record<string, Value>; problems: Record<string, string> } {
  const values: Record<string, Value> = {}
  const problems: Record<string, string> = {}
  for (const field of fields) {
    const given = typed[field.name] ?? field.initial
    const name = field.label
    if (typeof given === 'boolean') values[field.name] = given
    else if (!given.trim()) {
      if (field.required) problems[field.name] = t('question.missing', { name })
    } else if (field.choices) values[field.name] = field.choices[Number(given)]?.value ?? given
    else if (field.type === 'string') values[field.name] = given
    else if (!Number.isFinite(Number(given))) problems[field.name] = t('question.notNumber', { name })
    else if (field.type === 'integer' && !Number.isSafeInteger(Number(given)))
      problems[field.name] = t('question.notWhole', { name })
    else values[field.name] = Number(given)
  }
  return { values, problems }
}
