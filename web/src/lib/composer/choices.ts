/** What a session may choose for itself: its agent, model and persona. */
import { get } from '../api/http'
import type { AgentInfo, AgentPage, SessionSummary } from '../api/schema'

/** The choices of a session; null is the default. */
export type Choices = Pick<SessionSummary, 'agent' | 'model' | 'persona'>

let known: Promise<AgentPage> | null = null

/** Load what there is to choose, once. */
export function loadChoices(): Promise<AgentPage> {
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

/** Whether there is more than one possibility. */
export function hasChoice(there: AgentPage): boolean {
  return there.items.length > 1 || there.personas.length > 0 || there.items.some(hasModels)
}

/** What changes with a choice: a model belongs to its agent. */
export function changesFor(name: keyof Choices, value: string | null): Partial<Choices> {
  return name === 'agent' ? { agent: value, model: null } : { [name]: value }
}
