/** What a session may choose for itself: its agent, model, persona and tools. */
import { get } from '../api/http'
import type { AgentInfo, AgentPage, SessionSummary } from '../api/schema'

/** The choices of a session; null is the default. The tools are names or patterns. */
export type Choices = Pick<SessionSummary, 'agent' | 'model' | 'persona'> & { tools?: string[] | null }

let known: Promise<AgentPage> | null = null

/** Load what there is to choose, once, or again. */
export function loadChoices(again = false): Promise<AgentPage> {
  if (again) known = null
  known ??= get<AgentPage>('/agents').catch((error: unknown) => {
    known = null
    throw error
  })
  return known
}

/** The agent that answers: the chosen one, or the default. */
export function currentAgent(there: AgentPage, chosen: Choices): AgentInfo | undefined {
  return there.items.find((each) => each.name === chosen.agent) ?? there.items.find((each) => each.default)
}

/** The model that was chosen; null for the agent's own. A model that the agent does not offer was only recorded. */
export function chosenModel(there: AgentPage, chosen: Choices): string | null {
  const agent = currentAgent(there, chosen)
  return chosen.model !== agent?.model && agent?.models.includes(chosen.model ?? '') ? chosen.model : null
}

/** A model without its provider. */
export function shortModel(model: string): string {
  return model.slice(model.indexOf(':') + 1)
}

/** What the button says: the model or else the agent, and the persona. */
export function choiceLabel(there: AgentPage, chosen: Choices): string {
  const agent = currentAgent(there, chosen)
  const model = chosenModel(there, chosen) ?? agent?.model
  const persona = there.personas.find((each) => each.name === chosen.persona)
  const words = [model ? shortModel(model) : (agent?.name ?? ''), persona ? (persona.title ?? persona.name) : '']
  return words.filter(Boolean).join(' · ')
}

/** Whether an agent has another model than its own. */
export function hasModels(agent: AgentInfo): boolean {
  return agent.models.some((each) => each !== agent.model)
}

/** Whether an agent has tools. Those of a model are unknown until it has connected to their servers. */
export function hasTools(agent: AgentInfo): boolean {
  return agent.tools === null ? agent.kind === 'model' : agent.tools.length > 0
}

/** Whether there is more than one possibility. */
export function hasChoice(there: AgentPage): boolean {
  return (
    there.items.length > 1 || there.personas.length > 0 || there.items.some((each) => hasModels(each) || hasTools(each))
  )
}

/** What changes with a choice: a model and tools belong to their agent. */
export function changesFor(name: 'agent' | 'model' | 'persona', value: string | null): Partial<Choices> {
  return name === 'agent' ? { agent: value, model: null, tools: null } : { [name]: value }
}

/** The tools that a session may use, of all that its agent has. */
export function chosenTools(all: readonly string[], patterns: readonly string[] | null | undefined): string[] {
  const matchers = patterns?.map(patternMatcher)
  return all.filter((name) => !matchers || matchers.some((matches) => matches.test(name)))
}

/** What is chosen after one tool was switched; null for all. */
export function switchTool(all: readonly string[], on: readonly string[], name: string): string[] | null {
  const after = all.filter((each) => on.includes(each) !== (each === name))
  return after.length === all.length ? null : after
}

/** A pattern of the server: `*` for any text, `?` for a character, `[a-c]` and `[!a-c]` for one of a set. */
function patternMatcher(pattern: string): RegExp {
  const source = pattern.replace(/\[(!?)([^\]]+)\]|\W/g, (part, not?: string, set?: string) => {
    if (set) return `[${not ? '^' : ''}${set.replace(/[\\^[]/g, '\\$&')}]`
    return part === '*' ? '.*' : part === '?' ? '.' : `\\${part}`
  })
  try {
    return new RegExp(`^(?:${source})$`, 's')
  } catch {
    return /(?!)/ // a set such as [z-a], which has no characters
  }
}
